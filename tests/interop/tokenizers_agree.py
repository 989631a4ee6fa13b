"""Our tokenizers and the packages tokenizers and sentencepiece give the same ids and the same text.

Usage: tokenizers_agree.py ENCODE_TEXTS PYTHON [SECONDS]. PYTHON has both packages; exit code 77 if it has not. Trains
small vocabularies with the configurations of published models, and compares them on Unicode's odd corners and on
random texts, for SECONDS (default 5).
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

SCRIPT = pathlib.Path(__file__).resolve()

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_WORDS = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
                  r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
ODD = [
    "", " ", "  ", "\n", "\r\n", "\t \r\n\r \n\n  \t", "a", "   leading and trailing   ", "hello   world\n\n\nnew\r\n\r\nlines\t\ttabs",
    "I'm you're WE'LL they'd it'S don'T ſ'ſ x'ſ 'll'LL'Ve", "e\u0301 é \u0301 a\u0301\u0327\u0323 \u1e9b\u0323 Å Å Å q\u0307\u0323",
    "ﬁ ﬀ ﬃ ① ½ ² ㎏ ｆｕｌｌ ｶﾞ ﷺ ㍿ Ⅷ ℌ ™", "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ☺️ 1️⃣", "\ud7ff\ue000\ufffd\uffff\ufffe\U00010000\U0010ffff\ufdd0",
    "\u0378\u0530\u05ff\u2fe0\U0001fb93\U000e0fff\U00050000", "\ue000\uf8ff\U000f0000\U00100000", "שלום עולם مرحبا بالعالم \u202eabc\u202c \u200f\u200e",
    "각 각 \u1100\u1161\u11a8 \u1100\u1161 가\u11a8 힣ᇂ \u1112\u1175\u11c2 \ua960\ud7b0", "\x00\x01\x02\x7f\x80\x85\x9f\xa0\xad\u180e\u200b\u2028\u2029\u202f\u205f\u3000\ufeff",
    "0 12 123 1234 12345 1234567890" + "7" * 300, "٠١٢٣ ०१२ ⅷ ¼ 一二三 ₀₁ ①②③ 𝟘𝟙𝟚", "x" * 5000, "ab" * 3000, " " * 3000, "\n" * 777 + " " * 33 + "x", "é" * 999, "\u0301" * 60,
    "漢字かな交じり文カタカナ語、混在テスト。中文字符测试！한국어 테스트", "ไม่มีช่องว่างระหว่างคำ ກຂຄງ မြန်မာ ខ្មែរ", "नमस्ते दुनिया க்ஷ తెలుగు ಕನ್ನಡ",
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x**2}  # ok\n\n\n\tif x != 0: pass\n", "http://example.com/?q=a%20b&c=d#e user@host.org C:\\path\\to",
    "<s></s><unk>text<s>more</s> <|endoftext|>a<|endoftext|> b <|begin_of_text|><|eot|>x <|eot|> <MASK> x<MASK>y word wordy sword word. _word_ <0x41><0x0A>",
    "a  <MASK>  b<MASK>\n\nc <R>  d<R>\t\te  <R>  <R>f", "▁ ▁▁a a▁b ▁<s>▁", "ĠaĊbĀ Ġ Ċ", "ǅ ǈ ǲ ΐ ß ẞ İ ı ŉ Σς", "\U0001e030\u0897\U00010d40\U000113e1\U000105c0\U00031350\U00016d43 \u1c89\u1c8aa\ua7dax \U0001cc00",
    "a\u0345\U0001e08f\u0301\u08d3\u0323\u1dfb\u0301 a\U00016ff0\u0301", "A\u030a\u0328 \u212b\u0301 \u0958 \u0344 \u2126", "fi\u200dle zw\u200cnj word\u200dword", "--- === *** ### $$$ ~~~ ...!!! ?!?!",
]
RANGES = [(0, 0x7f), (0x20, 0x7e), (0x80, 0x24f), (0x2b0, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0xe00, 0xeff), (0x1100, 0x11ff),
          (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2100, 0x218f), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7ff), (0xe000, 0xffff),
          (0x10000, 0x11fff), (0x1d400, 0x1d7ff), (0x1f000, 0x1faff), (0x20000, 0x323af), (0xe0000, 0x10ffff), (0x0, 0x10ffff)]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "123", "<s>", "</s>", "<|endoftext|>", "<MASK>", "<R>", "word", "▁", "the ", "and"]


def random_text(draw):
    """Returns a text of a few scripts, with pieces that tokenizers treat specially."""
    text = []
    for _ in range(draw.randint(1, 12)):
        low, high = draw.choice(RANGES)
        if draw.random() < 0.4:
            text.append(draw.choice(PIECES))
            continue
        for _ in range(draw.randint(1, 20)):
            character = draw.randint(low, high)
            if not 0xd800 <= character < 0xe000:
                text.append(chr(character))
    return "".join(text)


def corpus():
    """Returns the text that vocabularies are trained on."""
    folder = pathlib.Path("/usr/share/games/fortunes")
    files = sorted(path for path in folder.iterdir() if "." not in path.name) if folder.exists() else [SCRIPT]
    text = "\n".join(path.read_text(errors="replace") for path in files)[:120_000]
    return text.split("\n%\n") + ODD * 3


def configurations():
    """Returns (name, tokenizer, whether its vocabulary is byte-level) of each kind of published model."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    split = pre_tokenizers.Split

    def bytes_of(regexes, **model):
        tokenizer = Tokenizer(models.BPE(**model))
        parts = [split(Regex(regex), "isolated") for regex in regexes]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        return tokenizer

    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    yield "gpt2", gpt2, True
    roberta = Tokenizer(models.BPE())
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    roberta.decoder = decoders.ByteLevel()
    yield "prefix", roberta, True
    yield "llama3", bytes_of([LLAMA3], ignore_merges=True), True
    qwen = bytes_of([QWEN])
    qwen.normalizer = normalizers.NFC()
    yield "qwen", qwen, True
    yield "gpt4o", bytes_of([GPT4O]), True
    yield "deepseek", bytes_of([r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_WORDS]), True
    starcoder = Tokenizer(models.BPE())
    starcoder.normalizer = normalizers.NFKC()
    starcoder.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    starcoder.decoder = decoders.ByteLevel()
    yield "digits_nfkc", starcoder, True
    merging = Tokenizer(models.BPE())
    merging.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"\s{2,}"), " ")])
    merging.pre_tokenizer = pre_tokenizers.Sequence(
        [split(Regex(r"\s"), "merged_with_next"), split(Regex(r"\p{P}+"), "merged_with_previous"),
         split(Regex(r"\p{Lu}"), "contiguous"), pre_tokenizers.Digits(False),
         split(",", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    merging.decoder = decoders.ByteLevel()
    yield "behaviors", merging, True
    spaces = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                decoders.Strip(" ", 1, 0)])
    for name, scheme, split_words in (("llama2", None, False), ("mistral", "first", False), ("metaspace", "always", True),
                                      ("never", "never", True)):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=name != "never", byte_fallback=name != "metaspace"))
        # llama2 gets its normalizer after training.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme or "always", split=True)
        tokenizer.decoder = spaces if name != "metaspace" else decoders.Metaspace(prepend_scheme="always")
        yield name, tokenizer, False


def train(folder, kinds=None):
    """Writes tokenizer.json of each configuration, or of `kinds`, to a folder of its own."""
    from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors, trainers
    texts = corpus()
    for name, tokenizer, byte_level in configurations():
        if kinds is not None and name not in kinds:
            continue
        specials = ["<unk>", "<s>", "</s>"] if not byte_level else ["<|endoftext|>", "<|begin_of_text|>", "<s>", "</s>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
        limit = None if byte_level else 300
        trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=specials, initial_alphabet=alphabet, show_progress=False,
                                      **({"limit_alphabet": limit} if limit else {}))
        tokenizer.train_from_iterator(texts, trainer)
        if name == "llama2":
            tokenizer.pre_tokenizer = None
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        elif name == "mistral":
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        if name in ("llama3", "llama2", "mistral"):
            first = "<s>" if not byte_level else "<|begin_of_text|>"
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{first} $A </s>" if name == "mistral" else f"{first} $A",
                special_tokens=[(first, tokenizer.token_to_id(first)), ("</s>", tokenizer.token_to_id("</s>"))])
        written = json.loads(tokenizer.to_str())
        vocabulary = written["model"]["vocab"]
        for byte in range(256) if written["model"]["byte_fallback"] else ():
            vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))
        tokenizer = Tokenizer.from_str(json.dumps(written))
        tokenizer.add_special_tokens([AddedToken("<|eot|>"), AddedToken("<MASK>", lstrip=True, normalized=name == "qwen")])
        tokenizer.add_tokens([AddedToken("<R>", rstrip=True, normalized=False), AddedToken("word", single_word=True),
                              AddedToken("  <R>", normalized=False), AddedToken("é!", normalized=True)])
        written = json.loads(tokenizer.to_str())
        (folder / name).mkdir()
        (folder / name / "tokenizer.json").write_text(json.dumps(written, ensure_ascii=name == "gpt2"))
    if kinds is not None:
        return
    import sentencepiece
    (folder / "text").write_text("\n".join(texts).replace("\0", ""))
    for kind in ("bpe", "unigram"):
        (folder / f"spm_{kind}").mkdir()
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / f"spm_{kind}" / "tokenizer"), vocab_size=1200, model_type=kind,
            byte_fallback=True, character_coverage=0.98, split_digits=True, minloglevel=2, num_threads=1,
            normalization_rule_name="identity" if kind == "bpe" else "nmt_nfkc", add_dummy_prefix=kind == "bpe")


class Peer:
    """A tokenizer of the packages."""

    def __init__(self, folder):
        if (folder / "tokenizer.json").exists():
            from tokenizers import Tokenizer
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self.encode = lambda text: [tokenizer.encode(text, add_special_tokens=add).ids for add in (False, True)]
            self.decode = tokenizer.decode
        else:
            import sentencepiece
            processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
            self.encode = lambda text: [processor.encode(text)] * 2
            self.decode = processor.decode


def compare(folder, program, texts):
    """Returns the number of texts whose ids or decoded text differ; prints the first ones."""
    peer = Peer(folder)
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    framed = b"".join(struct.pack("<Q", len(text)) + text for text in raw)
    run = subprocess.run([program, str(folder)], input=framed, capture_output=True, check=False)
    if run.returncode:
        sys.exit(f"{folder.name}: {run.stderr.decode()}")
    out, at, different = run.stdout, 0, 0

    def take(size):
        nonlocal at
        count = struct.unpack_from("<Q", out, at)[0]
        at += 8 + count * size
        return out[at - count * size:at]

    for text in raw:
        ours = [list(struct.unpack(f"<{len(ids) // 4}I", ids)) for ids in (take(4), take(4))]
        decoded = take(1).decode(errors="replace")
        known = text.decode(errors="replace")
        theirs = peer.encode(known)
        if ours != theirs:
            different += 1
            if different <= 3:
                at_id = next((i for i, (a, b) in enumerate(zip(ours[0], theirs[0])) if a != b), -1)
                print(f"{folder.name}: {known[:200]!r}: id {at_id}: {ours[0][at_id:][:12]} != {theirs[0][at_id:][:12]}")
        elif decoded != peer.decode(theirs[0]):
            different += 1
            if different <= 3:
                print(f"{folder.name}: decoded {decoded[:100]!r} != {peer.decode(theirs[0])[:100]!r}")
    return different


def peer_main(folder, program, seconds):
    """Runs in the other Python."""
    folder = pathlib.Path(folder)
    train(folder)
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    draw = random.Random(1)
    invalid = [b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x98 x", b"\xed\xa0\x80", b"\xc0\x80\xf8", b"\x80\x80", b"ok \xe2\x28\xa1"]
    line = " ".join(text.replace("\n", " ") for text in corpus())
    long_line = (line * (1 + 300_000 // len(line)))[:300_000]
    failed = texts = 0
    for each in folders:  # SentencePiece reads invalid bytes in its own way
        cases = ODD + ([] if each.name.startswith("spm") else invalid) + [long_line]
        failed += compare(each, program, cases)
        texts += len(cases)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for each in folders:
            cases = [random_text(draw) for _ in range(400)]
            failed += compare(each, program, cases)
            texts += len(cases)
    print(f"{texts} texts with {len(folders)} tokenizers, {failed} differ")
    return 1 if failed else 0


def main():
    if sys.argv[1] == "peer":
        return peer_main(*sys.argv[2:])
    program, python, seconds = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["5"])[0]
    has = pathlib.Path(python).exists() and subprocess.run(
        [python, "-c", "import tokenizers, sentencepiece"], capture_output=True, check=False).returncode == 0
    if not has:
        print("skipped: no Python with tokenizers and sentencepiece; ./test installs one")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([python, "-B", str(SCRIPT), "peer", folder, program, seconds], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
