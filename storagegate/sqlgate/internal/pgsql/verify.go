package pgsql

import "github.com/leased-project/leased/storagegate"

// Settings reads the settings that Weaknesses checks, as name and value.
const Settings = `SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'in_hot_standby')`

// Weaknesses returns the settings with which PostgreSQL loses marks.
func Weaknesses(settings map[string]string) []storagegate.Weakness {
	var found []storagegate.Weakness
	for _, check := range []struct{ name, bad, advice string }{
		{"fsync", "off", "set it to on, because a power failure can damage the database otherwise"},
		{"full_page_writes", "off", "set it to on, because a power failure can damage the database otherwise"},
		{"synchronous_commit", "off", "set it to on or local, because a crash loses the last marks otherwise"},
		{"in_hot_standby", "on", "connect to the primary"},
	} {
		if settings[check.name] == check.bad {
			found = append(found, storagegate.Weakness{Server: "PostgreSQL", Setting: check.name, Value: check.bad, Advice: check.advice})
		}
	}
	return found
}
