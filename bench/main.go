// Command bench compares leased with other lock services under load, on one machine, in
// one run.
package main

func main() {}
