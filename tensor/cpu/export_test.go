package cpu

// ChooseTier is choose, for package cpu_test.
var ChooseTier = choose
