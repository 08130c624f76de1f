"""Reads documents with another project's reader: beside.py READER IN OUT. Reads each file of the folder IN and writes its text, if there is
one, to a file of the same name in OUT. A file that takes longer than a minute has none."""

import os
import signal
import sys

LIMIT = 60  # seconds


def kreuzberg_reader():
    import kreuzberg

    return lambda path: kreuzberg.extract_file_sync(path).content


def markitdown_reader():
    import markitdown

    reader = markitdown.MarkItDown(enable_plugins=False)
    return lambda path: reader.convert(path).text_content


def too_long(signum, frame):
    raise TimeoutError


def main():
    name, given, out = sys.argv[1:]
    read = {"kreuzberg": kreuzberg_reader, "markitdown": markitdown_reader}[name]()
    signal.signal(signal.SIGALRM, too_long)
    for file in sorted(os.listdir(given)):
        signal.alarm(LIMIT)
        try:
            text = read(os.path.join(given, file))
        except BaseException as why:  # a reader's panic is no Exception
            if isinstance(why, KeyboardInterrupt):
                raise
            text = None
        finally:
            signal.alarm(0)
        if text:
            with open(os.path.join(out, file), "w", encoding="utf-8", errors="replace") as f:
                f.write(text)


main()
