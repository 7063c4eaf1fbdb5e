dpolicy calibrate --kind gaussian --epsilon 1 --delta 0
