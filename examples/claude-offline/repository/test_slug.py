import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_signs(self):
        self.assertEqual(slug("  What, now?! "), "what-now")

    def test_accents(self):
        self.assertEqual(slug("Déjà vu"), "deja-vu")


if __name__ == "__main__":
    unittest.main()
