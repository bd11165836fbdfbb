#pragma once

#include <string_view>

namespace lapidary::marker {

// The special tokens that the chat template writes and that answers hold.
inline constexpr std::string_view kBos = "<bos>";
inline constexpr std::string_view kTurnOpen = "<|turn>";
inline constexpr std::string_view kTurnClose = "<turn|>";
inline constexpr std::string_view kThink = "<|think|>";
inline constexpr std::string_view kChannelOpen = "<|channel>";
inline constexpr std::string_view kChannelClose = "<channel|>";
inline constexpr std::string_view kToolOpen = "<|tool>";
inline constexpr std::string_view kToolClose = "<tool|>";
inline constexpr std::string_view kCallOpen = "<|tool_call>";
inline constexpr std::string_view kCallClose = "<tool_call|>";
inline constexpr std::string_view kResponseOpen = "<|tool_response>";
inline constexpr std::string_view kResponseClose = "<tool_response|>";
inline constexpr std::string_view kQuote = "<|\"|>";
inline constexpr std::string_view kImage = "<|image|>";
inline constexpr std::string_view kAudio = "<|audio|>";
inline constexpr std::string_view kVideo = "<|video|>";

// What follows kChannelOpen and kCallOpen.
inline constexpr std::string_view kThoughtLabel = "thought\n";
inline constexpr std::string_view kCallLabel = "call:";

}  // namespace lapidary::marker
