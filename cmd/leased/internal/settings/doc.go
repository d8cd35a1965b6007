// Package settings reads the configuration of a member.
//
// Each setting has one key, as a flag (--raft-listen), in the environment
// (LEASED_RAFT_LISTEN) and in a YAML file (raft-listen). Flags override the
// environment, which overrides the file.
//
// It checks each setting and their combination. It does not check whether an
// address can be reached or a certificate is valid.
//
// The nouns, in reading order:
//
//   - [Settings]: the values and their sources.
//   - keys: the table of all settings; those for Redis are in redis.go,
//     those for limits in limits.go.
//   - [Error]: the key, the value and the rule that it breaks.
package settings
