"""What options' values may be: each function takes a text and returns the value."""

import argparse
import os
import re


def positive(text):
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def numbers(text):
    return tuple(sorted({positive(word) for word in text.split(",")}))


def number(text):
    return 0 if text == "0" else positive(text)


def memory_sizes(text):
    """In MiB."""
    sizes = set()
    for word in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,3})([MG])", word)
        mib = int(match.group(1)) * (1024 if match.group(2) == "G" else 1) if match else 0
        if mib < 32:
            raise argparse.ArgumentTypeError(f"'{word}' is no size of memory like 128M or 8G")
        sizes.add(mib)
    return tuple(sorted(sizes))


def frames(text):
    frames = numbers(text)
    for frame in frames:
        if not 60 <= frame <= 1514:
            raise argparse.ArgumentTypeError(f"'{frame}' is no length of a frame: give 60 to 1514")
    return frames


def messages(text):
    messages = numbers(text)
    for message in messages:
        if not 8 <= message <= 65536:
            raise argparse.ArgumentTypeError(f"'{message}' is no length of a message: give 8 to 65536")
    return messages


def poll_limits(text):
    return tuple(sorted({0 if word == "0" else positive(word) for word in text.split(",")}))


def rates(text):
    for word in text.split(","):
        positive(word.removesuffix("%"))
    return tuple(text.split(","))


def block_size(text):
    if not re.fullmatch(r"[1-9]\d*[kM]?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no size like 4k")
    return text


def milliseconds(text):
    match = re.fullmatch(r"([1-9]\d*)(ms|s)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no time like 1s or 500ms")
    return int(match.group(1)) * (1000 if match.group(2) == "s" else 1)


def two_processors(text):
    match = re.fullmatch(r"(\d{1,4}):(\d{1,4})", text)
    allowed = os.sched_getaffinity(0)
    if not match or not {int(number) for number in match.groups()} <= allowed:
        raise argparse.ArgumentTypeError(f"'{text}' is no two processors like 0:1; there are "
                                         + ",".join(map(str, sorted(allowed))))
    return int(match.group(1)), int(match.group(2))


def microseconds(text):
    match = re.fullmatch(r"(\d{1,6})us", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no time like 20us")
    return int(match.group(1))


def think_time(text):
    if not re.fullmatch(r"0us|[1-9]\d{0,5}us|[1-9]\d{0,2}ms", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no time below a second like 20us or 2ms")
    return text


def prices(text):
    """As text: it goes into names and to Ringside as it is."""
    prices = tuple(dict.fromkeys(text.split(",")))
    for price in prices:
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", price):
            raise argparse.ArgumentTypeError(f"'{price}' is no price like 0.5")
    return prices


def words_of(allowed):
    def parse_words(text):
        words = tuple(dict.fromkeys(text.split(",")))
        for word in words:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(allowed)}")
        return words
    return parse_words
