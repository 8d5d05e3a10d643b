import unittest

from stats import mean, median


class StatsTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3)

    def test_median_of_an_odd_number_of_values(self):
        self.assertEqual(median([5, 1, 3]), 3)

    def test_median_of_an_even_number_of_values(self):
        self.assertEqual(median([4, 1, 2, 10]), 3)


if __name__ == "__main__":
    unittest.main()
