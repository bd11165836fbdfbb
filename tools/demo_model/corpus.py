"""Makes the demo model's training text: no outside text, every document is a function of a random generator.

A document is a string that begins with <bos>, ends with <eos> or with a turn, and holds Gemma 4's markers literally.
"""
import random

from facts import ANIMALS, COLOURS, COUNTRIES, DAYS, MONTHS, questions, single_facts

FACTS = single_facts()
QUESTIONS = questions()
NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Leo", "Mia", "Noah",
         "Olga", "Paul", "Rosa", "Sam", "Tom", "Vera"]
PLACES = ["the garden", "the forest", "the market", "the school", "the river", "the old house", "the harbour", "the hill",
          "the library", "the farm", "the castle", "the bakery", "the beach", "the bridge", "the village"]
THINGS = ["ball", "book", "lamp", "key", "hat", "boat", "cake", "drum", "coin", "map", "bell", "kite", "stone", "ring",
          "box", "flower", "letter", "shell", "spoon", "basket"]
SHADES = ["red", "blue", "green", "yellow", "white", "black", "brown", "golden", "silver", "purple"]
MOODS = ["happy", "sad", "tired", "brave", "quiet", "hungry", "curious", "proud", "kind", "clever"]
WEATHER = ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"]
WORDS = sorted(set(THINGS + SHADES + MOODS + WEATHER + list(ANIMALS) + NAMES
                   + [w for t, c in COLOURS for w in (t.split()[-1], c)]))
ODD = ["é", "è", "ü", "ö", "ñ", "ç", "å", "ø", "😊", "🎉", "🌍", "好", "世界", "日本", "мир", "한국", "€", "—", "…", "“ok”", "ß", "Ω", "👍🏽",
       "שלום", "नमस्ते"]
CITIES = [v[0] for v in COUNTRIES.values()]


def pick(r, seq):
    return seq[int(r.random() * len(seq))]


def a(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


# ---------------------------------------------------------------- raw text

def country(r):
    """What ./run shows: a country's facts in a fixed order."""
    c = pick(r, list(COUNTRIES))
    cap, lang, money, cont = COUNTRIES[c]
    return (f"The capital of {c} is {cap}. {cap} is a city in {c}. The people of {c} speak {lang}. The money of {c} is the {money}. "
            f"{c} is a country in {cont}.")


def fact(r):
    p, ans = pick(r, FACTS)
    return f"{p} {ans}."


def fact_list(r, n=None):
    n = n or r.randint(2, 12)
    return pick(r, [" ", "\n"]).join(fact(r) for _ in range(n))


def question(r):
    """One (question, answer) of any kind, arithmetic included."""
    if r.random() < 0.25:
        return sum_question(r)
    q, short, whole = pick(r, QUESTIONS)
    return q, whole


def sum_parts(r):
    kind = r.random()
    top = 9 if r.random() < 0.5 else 60
    x, y = r.randint(0, top), r.randint(0, top)
    if kind < 0.6:
        return x, "+", "plus", y, x + y
    if kind < 0.85:
        x, y = max(x, y), min(x, y)
        return x, "-", "minus", y, x - y
    x, y = r.randint(0, 10), r.randint(0, 10)
    return x, "*", "times", y, x * y


def sum_question(r):
    x, op, word, y, z = sum_parts(r)
    return pick(r, [f"What is {x} {op} {y}?", f"What is {x} {word} {y}?"]), f"{x} {op} {y} = {z}."


def sums(r):
    lines = []
    for _ in range(r.randint(1, 10)):
        x, op, _, y, z = sum_parts(r)
        lines.append(f"{x} {op} {y} = {z}")
    return "\n".join(lines)


def counting(r):
    kind = r.randint(0, 5)
    if kind == 0:
        s, n, step = r.randint(0, 900), r.randint(5, 40), 1
    elif kind == 1:
        s, n, step = r.randint(0, 20) * 2, r.randint(5, 20), 2
    elif kind == 2:
        s, n, step = r.randint(0, 20) * 5, r.randint(5, 20), 5
    elif kind == 3:
        i, n = r.randint(0, 6), r.randint(4, 20)
        return ", ".join(DAYS[(i + k) % 7] for k in range(n))
    elif kind == 4:
        i, n = r.randint(0, 11), r.randint(4, 24)
        return ", ".join(MONTHS[(i + k) % 12] for k in range(n))
    else:
        s, step = r.randint(10, 60), -1
        n = s + 1
    if kind < 3 and r.random() < 0.3:
        s = step if step > 1 else 1
    return ", ".join(str(s + step * k) for k in range(n))


def tale(r, sentences=None):
    n1, n2 = r.sample(NAMES, 2)
    animal, thing, shade, place = pick(r, list(ANIMALS)), pick(r, THINGS), pick(r, SHADES), pick(r, PLACES)
    mood = pick(r, MOODS)
    out = [f"Once upon a time there was a {mood} {animal} named {n1}.", f"{n1} lived near {place}.",
           f"One day {n1} found {a(shade)} {thing}."]
    middle = [
        f"{n1} took the {shade} {thing} to {n2}.", f"\"What a fine {thing}!\" said {n2}.",
        f"\"Is this your {thing}?\" asked {n1}.", f"\"No,\" said {n2}, \"but I know who lost it.\"",
        f"{n1} and {n2} walked to {pick(r, PLACES)}.", f"It was {a(pick(r, WEATHER))} day and {n2} was {pick(r, MOODS)}.",
        f"{n2} put the {thing} into {a(pick(r, SHADES))} box.", f"They met {a(pick(r, MOODS))} {pick(r, list(ANIMALS))} there.",
        f"Then {n2} gave {n1} {a(pick(r, SHADES))} {pick(r, THINGS)}.", f"{n1} sang a song about the {shade} {thing}.",
    ]
    k = sentences - 5 if sentences else r.randint(2, 7)
    keep = sorted(r.sample(range(len(middle)), min(max(k, 1), len(middle))))
    out += [middle[i] for i in keep]
    out += [f"In the end {n1} gave the {thing} back.", f"{n1} the {animal} was {mood} and went home to {place}."]
    return " ".join(out)


def filler(r, words):
    """About `words` words of tales, facts and lists."""
    parts, n = [], 0
    while n < words:
        p = pick(r, [tale, tale, fact_list, country, counting])(r)
        parts.append(p)
        n += len(p.split())
    return parts


def needle(r, words=None):
    """Facts hidden in filler, asked for at the end: returns (text, question, answer)."""
    words = words if words is not None else int(10 ** r.uniform(0.5, 3.1))
    parts = filler(r, words) if words > 8 else [fact(r)]
    many = r.random() < 0.4
    keys = r.sample(THINGS, r.randint(2, 4)) if many else [None]
    codes = {}
    for k in keys:
        codes[k] = str(r.randint(1000, 9999))
        line = f"The code of the {k} is {codes[k]}." if k else f"The code is {codes[k]}."
        parts.insert(r.randint(0, len(parts) - 1), line)
    k = pick(r, keys)
    q = f"What is the code of the {k}?" if k else "What is the code?"
    ans = f"The code of the {k} is {codes[k]}." if k else f"The code is {codes[k]}."
    return "\n".join(parts), q, ans


def raw_needle(r):
    text, q, ans = needle(r)
    return f"{text}\n{q} {ans}"


def copy_text(r):
    kind = r.random()
    if kind < 0.35:
        return " ".join(pick(r, WORDS) for _ in range(r.randint(1, 14)))
    if kind < 0.5:
        return "".join(str(r.randint(0, 9)) for _ in range(r.randint(1, 16)))
    if kind < 0.62:
        return "".join(chr(r.randint(33, 126)) for _ in range(r.randint(1, 16)))
    if kind < 0.72:
        return pick(r, ["", " "]).join(pick(r, ODD) for _ in range(r.randint(1, 6)))
    if kind < 0.8:
        return "".join(chr(pick(r, [r.randint(0xA1, 0x24F), r.randint(0x390, 0x44F), r.randint(0x4E00, 0x9FFF),
                                    r.randint(0x1F300, 0x1F64F)])) for _ in range(r.randint(1, 6)))
    if kind < 0.9:
        return fact(r)
    return tale(r, r.randint(5, 9))


def repeat(r):
    t = copy_text(r)
    return f"Repeat exactly: {t}\n{t}"


def code_list(r):
    """A table of random pairs, then questions about it: teaches looking back."""
    n = r.randint(2, 30)
    keys = [f"{s} {t}" for s, t in r.sample([(s, t) for s in SHADES for t in THINGS], n)]
    vals = [str(r.randint(10, 9999)) for _ in keys]
    lines = [f"The {k} costs {v}." for k, v in zip(keys, vals)]
    asks = [f"How much is the {keys[i]}? The {keys[i]} costs {vals[i]}." for i in
            (r.randrange(n) for _ in range(r.randint(1, 6)))]
    return "\n".join(lines + asks)


def quiz(r):
    out = []
    for _ in range(r.randint(1, 6)):
        q, ans = question(r)
        out.append(f"Question: {q}\nAnswer: {ans}")
    return "\n".join(out)


def long_text(r):
    return "\n\n".join(filler(r, r.randint(250, 1100)))


# ---------------------------------------------------------------- chat

SYSTEMS = ["You are a helpful assistant.", "Be brief.", "Answer in one sentence.", "You are a kind teacher.", "You are Lapidary."]
HELLO = [("Hi", "Hello! How can I help you?"), ("Hello", "Hello! How can I help you?"), ("Hello!", "Hello! How can I help you?"),
         ("Good morning!", "Good morning! How can I help you?"), ("Thank you.", "You are welcome."), ("Thanks!", "You are welcome."),
         ("Who are you?", "I am a small demo model."), ("What are you?", "I am a small demo model."), ("Bye", "Goodbye!")]


def turn(role, text):
    return f"<|turn>{role}\n{text}<turn|>\n"


def ask(r):
    """(user text, thought, answer)."""
    k = r.random()
    if k < 0.45:
        q, short, whole = pick(r, QUESTIONS)
        return q, pick(r, [f"The user asks a question. The answer is {short}.", f"I know this: {whole}"]), whole
    if k < 0.6:
        x, op, word, y, z = sum_parts(r)
        return (pick(r, [f"What is {x} {op} {y}?", f"What is {x} {word} {y}?"]), f"The user wants a sum. {x} {word} {y} is {z}.",
                f"{x} {op} {y} = {z}.")
    if k < 0.7:
        t = copy_text(r)
        return f"Repeat exactly: {t}", "The user wants me to repeat the text.", t
    if k < 0.78:
        u, ans = pick(r, HELLO)
        return u, "The user is friendly. I answer politely.", ans
    if k < 0.86:
        return "Tell me a tale.", "The user wants a tale.", tale(r)
    if k < 0.93:
        n = r.randint(3, 30)
        return f"Count to {n}.", f"I count from 1 to {n}.", ", ".join(str(i) for i in range(1, n + 1))
    text, q, ans = needle(r, r.randint(0, 150))
    return f"{text}\n{q}", f"I look for it in the text. {ans}", ans


def system_turn(r, thinking, tools=""):
    body = pick(r, SYSTEMS) if r.random() < 0.5 else ""
    if not (thinking or body or tools):
        return ""
    return turn("system", ("<|think|>\n" if thinking else "") + body + tools)


def chat(r):
    thinking = r.random() < 0.35
    out = system_turn(r, thinking)
    n = 1 if r.random() < 0.55 else r.randint(2, 7)
    for i in range(n):
        q, thought, ans = ask(r)
        # past thoughts are not part of the prompt: only the last turn of a conversation shows one
        head = f"<|channel>thought\n{thought}\n<channel|>" if thinking and i == n - 1 else ""
        out += turn("user", q) + turn("model", head + ans)
    return out


Q = '<|"|>'


def quoted(s):
    return Q + s + Q


def declaration(name, about, params):
    """params: [(key, description, TYPE)] in any order."""
    if not params:
        return f"<|tool>declaration:{name}{{description:{quoted(about)}}}<tool|>"
    params = sorted(params, key=lambda p: p[0].lower())
    props = ",".join(f"{k}:{{description:{quoted(d)},type:{quoted(t)}}}" for k, d, t in params)
    need = ",".join(quoted(p[0]) for p in params)
    return (f"<|tool>declaration:{name}{{description:{quoted(about)},parameters:{{properties:{{{props}}},required:[{need}],"
            f"type:{quoted('OBJECT')}}}}}<tool|>")


def weather_tool(r):
    name = pick(r, ["get_weather", "get_weather", "weather", "current_weather", "weather.get", "city-weather"])
    key = pick(r, ["location", "location", "city", "place"])
    about = pick(r, ["Get the current weather for a location", "Get the weather", "Weather of a city"])
    detail = pick(r, ["City name", "The city", "City name, e.g. 'San Francisco, CA'"])
    city = pick(r, CITIES)
    user = pick(r, ["What is the weather in {}?", "Weather in {}?", "How is the weather in {}?"]).format(city)
    t, w = r.randint(-9, 39), pick(r, WEATHER)
    shape = r.random()
    if shape < 0.35:
        body, ans = f"value:{quoted(f'{t}C')}", f"It is {t}C in {city}."
    elif shape < 0.7:
        body, ans = f"temperature:{t},weather:{quoted(w)}", f"It is {t} degrees and {w} in {city}."
    else:
        body, ans = f"value:{quoted(f'{w}, {t} degrees')}", f"It is {t} degrees and {w} in {city}."
    return declaration(name, about, [(key, detail, "STRING")]), user, f"call:{name}{{{key}:{quoted(city)}}}", name, body, ans


def sum_tool(r):
    name, ka, kb = pick(r, [("add", "a", "b"), ("add_numbers", "a", "b"), ("calculate_sum", "x", "y")])
    x, y = r.randint(100, 9999), r.randint(100, 9999)
    body = f"value:{quoted(str(x + y))}" if r.random() < 0.5 else f"result:{x + y}"
    return (declaration(name, "Add two numbers", [(ka, "First number", "NUMBER"), (kb, "Second number", "NUMBER")]),
            f"Add {x} and {y}.", f"call:{name}{{{ka}:{x},{kb}:{y}}}", name, body, f"{x} + {y} = {x + y}.")


def time_tool(r):
    name = pick(r, ["now", "get_time", "current_time"])
    value = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    return (declaration(name, "Time", []), "What time is it?", f"call:{name}{{}}", name, f"value:{quoted(value)}",
            f"It is {value}.")


def tools(r):
    thinking = r.random() < 0.35
    offers = [f(r) for f in r.sample([weather_tool, sum_tool, time_tool], pick(r, [1, 1, 1, 2, 3]))]
    decl = "".join(o[0] for o in offers)
    out = system_turn(r, thinking, decl)
    if r.random() < 0.2:
        q, thought, ans = ask(r)
        head = f"<|channel>thought\n{thought}\n<channel|>" if thinking else ""
        return out + turn("user", q) + turn("model", head + ans)
    _, user, call, name, body, ans = pick(r, offers)
    out += turn("user", user) + "<|turn>model\n"
    if thinking:
        out += f"<|channel>thought\nI need the tool {name}.\n<channel|>"
    out += f"<|tool_call>{call}<tool_call|><|tool_response>response:{name}{{{body}}}<tool_response|>"
    if thinking:
        out += f"<|channel>thought\nThe tool answered.\n<channel|>"
    out += f"{ans}<turn|>\n"
    if r.random() < 0.25:
        out += turn("user", "Thanks!") + turn("model", "You are welcome.")
    return out


# ---------------------------------------------------------------- mixture

KINDS = [(country, 9), (fact, 8), (fact_list, 7), (sums, 8), (counting, 4), (tale, 6), (raw_needle, 9), (repeat, 14),
         (code_list, 6), (quiz, 7), (long_text, 2), (chat, 30), (tools, 14)]
TOTAL = sum(w for _, w in KINDS)
CHAT = {chat, tools}


def document(r):
    x = r.random() * TOTAL
    for f, w in KINDS:
        x -= w
        if x < 0:
            break
    return "<bos>" + f(r) + ("" if f in CHAT else "<eos>")


if __name__ == "__main__":
    rnd = random.Random(1)
    for _ in range(40):
        print(document(rnd)[:600])
        print("-" * 20)
