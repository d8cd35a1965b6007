// Command profiles shows where the processor time of leased goes: it takes CPU profiles of
// the client, the leader and a follower under load, and adds up the time by layer.
//
// It does not measure how long a worker waits.
//
// The nouns, in reading order: recorder, which takes the profiles; layer, a part of the code.
package main
