// Package settings reads the configuration of a server.
//
// A setting has one key and one meaning, wherever it is given: as a flag
// (--raft-listen), in the environment (LEASED_RAFT_LISTEN) or in a YAML file
// (raft-listen). A flag counts more than the environment, which counts more
// than the file.
//
// What it does not give: it checks each setting and how they go together, not
// whether an address can be reached or a certificate is any good.
//
// The nouns, in reading order:
//
//   - [Settings]: the values, and where each came from.
//   - keys: the table of all settings; those about Redis are in redis.go.
//   - [Error]: which key, which value, which rule.
package settings
