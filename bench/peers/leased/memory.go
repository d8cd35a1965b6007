package leased

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Memory returns the bytes that each Redis node uses for its data, without the buffers of
// connections. It implements [peers.MemoryReporter]: for the few leases that are held in
// Redis, the memory of the processes is too coarse.
func (p *redisPeer) Memory(ctx context.Context) (all []int64, err error) {
	for _, node := range p.service.redis {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		text, err := c.Info(ctx, "memory").Result()
		_ = c.Close()
		if err != nil {
			return nil, fmt.Errorf("read the memory of Redis node %s: %w", node.Addr, err)
		}
		all = append(all, usedMemory(text))
	}
	return all, nil
}

// usedMemory reads the answer of a node.
func usedMemory(text string) (used int64) {
	signs := map[string]int64{"used_memory_dataset": 1, "used_memory_overhead": 1, "mem_clients_normal": -1, "mem_clients_slaves": -1}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		used += signs[name] * n
	}
	return used
}
