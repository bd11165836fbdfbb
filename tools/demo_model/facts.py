"""Plain facts the demo model is taught. Everything here is written for this project."""

# country: capital, adjective-free language, currency, continent
COUNTRIES = {
    "France": ("Paris", "French", "euro", "Europe"),
    "Germany": ("Berlin", "German", "euro", "Europe"),
    "Italy": ("Rome", "Italian", "euro", "Europe"),
    "Spain": ("Madrid", "Spanish", "euro", "Europe"),
    "Portugal": ("Lisbon", "Portuguese", "euro", "Europe"),
    "Austria": ("Vienna", "German", "euro", "Europe"),
    "Greece": ("Athens", "Greek", "euro", "Europe"),
    "Ireland": ("Dublin", "English", "euro", "Europe"),
    "Finland": ("Helsinki", "Finnish", "euro", "Europe"),
    "Sweden": ("Stockholm", "Swedish", "krona", "Europe"),
    "Norway": ("Oslo", "Norwegian", "krone", "Europe"),
    "Denmark": ("Copenhagen", "Danish", "krone", "Europe"),
    "Iceland": ("Reykjavik", "Icelandic", "krona", "Europe"),
    "Poland": ("Warsaw", "Polish", "zloty", "Europe"),
    "Hungary": ("Budapest", "Hungarian", "forint", "Europe"),
    "Romania": ("Bucharest", "Romanian", "leu", "Europe"),
    "Ukraine": ("Kyiv", "Ukrainian", "hryvnia", "Europe"),
    "Japan": ("Tokyo", "Japanese", "yen", "Asia"),
    "China": ("Beijing", "Chinese", "yuan", "Asia"),
    "India": ("New Delhi", "Hindi", "rupee", "Asia"),
    "Thailand": ("Bangkok", "Thai", "baht", "Asia"),
    "Vietnam": ("Hanoi", "Vietnamese", "dong", "Asia"),
    "Mongolia": ("Ulaanbaatar", "Mongolian", "tugrik", "Asia"),
    "Nepal": ("Kathmandu", "Nepali", "rupee", "Asia"),
    "Egypt": ("Cairo", "Arabic", "pound", "Africa"),
    "Kenya": ("Nairobi", "Swahili", "shilling", "Africa"),
    "Ethiopia": ("Addis Ababa", "Amharic", "birr", "Africa"),
    "Ghana": ("Accra", "English", "cedi", "Africa"),
    "Morocco": ("Rabat", "Arabic", "dirham", "Africa"),
    "Canada": ("Ottawa", "English", "dollar", "North America"),
    "Mexico": ("Mexico City", "Spanish", "peso", "North America"),
    "Cuba": ("Havana", "Spanish", "peso", "North America"),
    "Brazil": ("Brasilia", "Portuguese", "real", "South America"),
    "Argentina": ("Buenos Aires", "Spanish", "peso", "South America"),
    "Chile": ("Santiago", "Spanish", "peso", "South America"),
    "Peru": ("Lima", "Spanish", "sol", "South America"),
    "Colombia": ("Bogota", "Spanish", "peso", "South America"),
    "Australia": ("Canberra", "English", "dollar", "Oceania"),
    "Fiji": ("Suva", "English", "dollar", "Oceania"),
}

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("left", "right"), ("day", "night"), ("open", "closed"),
    ("fast", "slow"), ("young", "old"), ("happy", "sad"), ("light", "dark"), ("full", "empty"), ("hard", "soft"),
    ("wet", "dry"), ("early", "late"), ("near", "far"), ("high", "low"), ("loud", "quiet"), ("rich", "poor"),
    ("strong", "weak"), ("first", "last"), ("long", "short"), ("true", "false"), ("black", "white"), ("clean", "dirty"),
]

COLOURS = [
    ("the sky", "blue"), ("grass", "green"), ("snow", "white"), ("coal", "black"), ("blood", "red"), ("a lemon", "yellow"),
    ("an orange", "orange"), ("a banana", "yellow"), ("a ripe tomato", "red"), ("milk", "white"), ("chocolate", "brown"),
    ("a carrot", "orange"), ("a leaf", "green"), ("the night", "black"), ("a flamingo", "pink"), ("an elephant", "grey"),
]

# animal: young, sound, legs, home
ANIMALS = {
    "dog": ("puppy", "barks", 4, "kennel"), "cat": ("kitten", "meows", 4, "house"), "cow": ("calf", "moos", 4, "barn"),
    "sheep": ("lamb", "bleats", 4, "field"), "horse": ("foal", "neighs", 4, "stable"), "pig": ("piglet", "grunts", 4, "sty"),
    "duck": ("duckling", "quacks", 2, "pond"), "hen": ("chick", "clucks", 2, "coop"), "lion": ("cub", "roars", 4, "savanna"),
    "frog": ("tadpole", "croaks", 4, "pond"), "goose": ("gosling", "honks", 2, "pond"), "owl": ("owlet", "hoots", 2, "tree"),
    "wolf": ("pup", "howls", 4, "forest"), "bee": ("larva", "buzzes", 6, "hive"), "goat": ("kid", "bleats", 4, "hill"),
}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

# complete sentence as (prompt, answer); the sentence is prompt + " " + answer + "."
PLAIN = [
    ("The planet closest to the sun is", "Mercury"), ("The largest planet is", "Jupiter"),
    ("The planet we live on is", "Earth"), ("The largest ocean is the", "Pacific"), ("The tallest animal is the", "giraffe"),
    ("The largest animal is the blue", "whale"), ("The fastest animal on land is the", "cheetah"),
    ("Ice is frozen", "water"), ("Bread is made from", "flour"), ("Cheese is made from", "milk"),
    ("Bees make", "honey"), ("Fish live in", "water"), ("The sun rises in the", "east"), ("The sun sets in the", "west"),
    ("A week has seven", "days"), ("A year has twelve", "months"), ("A triangle has three", "sides"),
    ("A square has four", "sides"), ("A spider has eight", "legs"), ("Water boils at 100 degrees", "Celsius"),
    ("The chemical symbol for gold is", "Au"), ("The chemical symbol for water is", "H2O"), ("Romeo and", "Juliet"),
    ("The first month of the year is", "January"), ("The last month of the year is", "December"),
    ("The first letter of the alphabet is", "A"), ("The last letter of the alphabet is", "Z"),
    ("The opposite of north is", "south"), ("The opposite of yes is", "no"), ("A day has 24", "hours"),
    ("An hour has 60", "minutes"), ("A minute has 60", "seconds"), ("The sea is full of salt", "water"),
    ("The moon goes around the", "Earth"), ("The Earth goes around the", "sun"),
]


def single_facts():
    """Every one-sentence fact as (prompt, answer): the text is prompt + ' ' + answer + '.'."""
    out = list(PLAIN)
    for c, (cap, lang, money, cont) in COUNTRIES.items():
        out += [(f"The capital of {c} is", cap), (f"The people of {c} speak", lang), (f"The money of {c} is the", money),
                (f"{c} is a country in", cont), (f"{cap} is the capital of", c)]
    for a, b in OPPOSITES:
        out += [(f"The opposite of {a} is", b), (f"The opposite of {b} is", a)]
    for thing, colour in COLOURS:
        out.append((f"The colour of {thing} is", colour))
    for animal, (young, sound, legs, home) in ANIMALS.items():
        art = "An" if animal[0] in "aeiou" else "A"
        out += [(f"A baby {animal} is called a" + ("n" if young[0] in "aeiou" else ""), young),
                (f"{art} {animal} has {NUMBERS[legs]}", "legs"), (f"The {animal} lives in the", home)]
    for i, d in enumerate(DAYS):
        out += [(f"The day after {d} is", DAYS[(i + 1) % 7]), (f"The day before {d} is", DAYS[(i - 1) % 7])]
    for i, m in enumerate(MONTHS):
        out += [(f"The month after {m} is", MONTHS[(i + 1) % 12]), (f"The month before {m} is", MONTHS[(i - 1) % 12])]
    return out


def questions():
    """Every (question, short answer, whole-sentence answer)."""
    out = []
    for c, (cap, lang, money, cont) in COUNTRIES.items():
        out += [(f"What is the capital of {c}?", cap, f"The capital of {c} is {cap}."),
                (f"Which language do the people of {c} speak?", lang, f"The people of {c} speak {lang}."),
                (f"What is the money of {c}?", money, f"The money of {c} is the {money}."),
                (f"Where is {c}?", cont, f"{c} is a country in {cont}."),
                (f"Of which country is {cap} the capital?", c, f"{cap} is the capital of {c}.")]
    for a, b in OPPOSITES:
        for x, y in ((a, b), (b, a)):
            out.append((f"What is the opposite of {x}?", y, f"The opposite of {x} is {y}."))
    for thing, colour in COLOURS:
        out.append((f"What colour is {thing}?", colour, f"The colour of {thing} is {colour}."))
    for animal, (young, sound, legs, home) in ANIMALS.items():
        n = "n" if young[0] in "aeiou" else ""
        art = "An" if animal[0] in "aeiou" else "A"
        out += [(f"What is a baby {animal} called?", young, f"A baby {animal} is called a{n} {young}."),
                (f"How many legs does a{'n' if art == 'An' else ''} {animal} have?", NUMBERS[legs],
                 f"{art} {animal} has {NUMBERS[legs]} legs."),
                (f"Where does the {animal} live?", home, f"The {animal} lives in the {home}.")]
    for i, d in enumerate(DAYS):
        out += [(f"Which day comes after {d}?", DAYS[(i + 1) % 7], f"The day after {d} is {DAYS[(i + 1) % 7]}."),
                (f"Which day comes before {d}?", DAYS[(i - 1) % 7], f"The day before {d} is {DAYS[(i - 1) % 7]}.")]
    for i, m in enumerate(MONTHS):
        out += [(f"Which month comes after {m}?", MONTHS[(i + 1) % 12], f"The month after {m} is {MONTHS[(i + 1) % 12]}.")]
    return out
