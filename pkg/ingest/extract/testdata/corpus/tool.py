"""A tool. MARK_DOC"""
import sys


class Queue:
    """死信队列"""

    def put(self, item):
        if item:

            self.items.append(item)  # MARK_INDENT
        else:
            raise ValueError


def main():
    return Queue()
