"""What a monitor saw, for people: a line, a screen drawn again and again, a document for console and page."""
