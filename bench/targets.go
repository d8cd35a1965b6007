package main

import (
	"github.com/leased-project/leased/bench/peers"
)

// targets is the table of the services, in the order of measurement within a round.
var targets = []peers.Kind{}
