"""Writes the corpus and the three task files of the comparison. All text comes from the templates below."""
import json, random

NAMES = ["Anna", "Ben", "Zoë", "Jürgen", "Maja", "Otto", "Lía", "Per"]
THINGS = ["kite", "drum", "boat", "lamp", "clock", "basket", "ladder", "violin"]
COLORS = ["red", "blue", "green", "yellow", "grey", "white"]
PLACES = ["garden", "harbour", "café", "kitchen", "attic", "market"]
NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
MATERIAL = {"kite": "paper", "drum": "leather", "boat": "wood", "lamp": "brass", "clock": "steel",
            "basket": "straw", "ladder": "aluminium", "violin": "maple"}
USE = {"kite": "flies in the wind", "drum": "makes a deep sound", "boat": "floats on the water", "lamp": "lights the room",
       "clock": "shows the time", "basket": "carries the bread", "ladder": "reaches the roof", "violin": "plays a melody"}

def story(r):
    a, b = r.sample(NAMES, 2)
    s, t = r.sample(THINGS, 2)
    c, d = r.sample(COLORS, 2)
    p = r.choice(PLACES)
    n = r.randrange(len(NUMBERS) - 1)
    parts = [f"{a} has a {c} {s} and {b} has a {d} {t}.", f"They meet in the {p}.",
             f"{b} counts {NUMBERS[n]}, {NUMBERS[n + 1]}.", f"The {s} {USE[s]}, and the {t} {USE[t]}."]
    end = r.choice([f"In the {p}, {a} holds the {c} {s}", f"In the {p}, {b} holds the {d} {t}",
                    f"The {s} of {a} is made of {MATERIAL[s]}", f"After {NUMBERS[n]} comes {NUMBERS[n + 1]}"])
    return " ".join(parts), end

def corpus(r):
    out = []
    for _ in range(4000):
        text, end = story(r)
        t = r.choice(THINGS)
        out.append(f"{text} {end}.\nQuestion: What is a {t} made of?\nAnswer: {MATERIAL[t]}\nQuestion: What does a {t} do?\nAnswer: It {USE[t]}.\n")
    return "\n".join(out)

def lambada(r, n):
    rows = []
    for i in range(n):
        text, end = story(r)
        for _ in range(i % 4):  # up to four stories: longer than the context
            more, last = story(r)
            text = f"{more} {last}. {text}"
        if i % 10 == 3:
            text = text.replace(". ", ".  ")  # an empty word
        if i % 10 == 7:
            end = end.rsplit(" ", 1)[0] + "  " + end.rsplit(" ", 1)[1]  # the context ends with a space
        rows.append({"text": f"{text} {end}"})
    rows.append({"text": "Anna"})  # no context
    return rows

def hellaswag(r, n):
    rows = []
    for i in range(n):
        a = r.choice(NAMES)
        t = r.choice(THINGS)
        wrong = r.sample([x for x in THINGS if x != t], 3)
        endings = [f"{USE[x]}." for x in [t] + wrong]
        if i % 5 == 1:
            endings = [f"{USE[t]}.", f"{USE[t]} [step] {USE[wrong[0]]}.", "[title] How to  stop", f"ist für {a} zu groß."]
        if i % 5 == 3:  # as many bytes per character as can be
            endings = [f"gehört Zoë.", f"läßt Jürgen schön grüßen.", f"öffnet für Lía die Tür.", f"is made of {MATERIAL[t]}."]
        order = list(range(4))
        r.shuffle(order)
        ctx_a = f"{a} has a {r.choice(COLORS)} {t}." + (" [header] At  home [title] In the café" if i % 6 == 2 else "")
        ctx_b = "" if i % 4 == 0 else ("the ÄRGER of Zoë" if i % 7 == 3 else f"the {t}")
        rows.append({"ind": i, "activity_label": r.choice(["Making things", "Family Life", " Straße "]), "ctx_a": ctx_a, "ctx_b": ctx_b,
                     "ctx": f"{ctx_a} {ctx_b}", "endings": [endings[k] for k in order], "label": str(order.index(0)) if i % 2 else order.index(0),
                     "source_id": f"made~{i}", "split": "val", "split_type": "indomain"})
    return rows

def arc(r, n):
    rows = []
    for i in range(n):
        t = r.choice(THINGS)
        k = 3 + i % 3
        if i % 4 == 0:
            right, pool, q = MATERIAL[t], sorted(set(MATERIAL.values()) - {MATERIAL[t]}), f"What is a {t} made of?"
        elif i % 4 == 1:
            right, pool, q = f"the {t}", [f"the {x}" for x in THINGS if x != t], f"Which thing {USE[t]}?"
        elif i % 4 == 2:
            right, pool, q = f"a {t} of {MATERIAL[t]}", [f"a {x} that {USE[x]}" for x in THINGS if x != t], f"What is of {MATERIAL[t]}?"
        else:
            a, b = r.sample(NAMES, 2)
            right, pool, q = a, [x for x in NAMES if x != a], f"{a} has a {t} and {b} has none. Who has the {t}?"
        choices = [right] + r.sample(pool, k - 1)
        if i % 6 == 5:
            choices[-1] = "größere Möbel für Zoë"
        r.shuffle(choices)
        labels = ["1", "2", "3", "4", "5"][:k] if i % 5 == 0 else list("ABCDE")[:k]
        rows.append({"id": f"made_{i}", "question": q, "choices": {"text": choices, "label": labels}, "answerKey": labels[choices.index(right)]})
    return rows

def write(name, rows):
    with open(name, "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")

if __name__ == "__main__":
    open("corpus.txt", "w").write(corpus(random.Random(1)))
    write("words.jsonl", lambada(random.Random(2), 40))
    write("endings.jsonl", hellaswag(random.Random(3), 40))
    write("questions.jsonl", arc(random.Random(4), 40))
