package virtual

import (
	"strconv"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// rdb is a copy of a server's data, like an RDB file.
type rdb struct {
	hashes  map[string]map[string]string
	strings map[string]string
	sets    map[string]map[string]float64 // with scores
}

// copy returns the current data.
func (s *redisServer) copy() rdb {
	d := rdb{map[string]map[string]string{}, map[string]string{}, map[string]map[string]float64{}}
	for _, key := range s.mini.Keys() {
		switch s.mini.Type(key) {
		case "hash":
			fields, _ := s.mini.HKeys(key) // an expired key is not copied
			d.hashes[key] = map[string]string{}
			for _, field := range fields {
				d.hashes[key][field] = s.mini.HGet(key, field)
			}
		case "string":
			d.strings[key], _ = s.mini.Get(key)
		case "zset":
			d.sets[key], _ = s.mini.SortedSet(key)
		}
	}
	return d
}

// putBack replaces the data of a stopped server.
func (s *redisServer) putBack(d rdb) {
	s.mini.FlushAll()
	for key, fields := range d.hashes {
		for field, value := range fields {
			s.mini.HSet(key, field, value)
		}
	}
	for key, value := range d.strings {
		_ = s.mini.Set(key, value) // fails only for other types
	}
	for key, members := range d.sets {
		for member, score := range members {
			_, _ = s.mini.ZAdd(key, score, member)
		}
	}
}

// top returns the largest accepted token or floor of any life of the node.
func (d rdb) top() (top fencing.Token) {
	for key, fields := range d.hashes {
		if !strings.HasSuffix(key, ":node") {
			continue
		}
		for _, field := range []string{"max", "floor"} {
			n, _ := strconv.ParseUint(fields[field], 10, 64)
			top = max(top, fencing.Token(n))
		}
	}
	return top
}
