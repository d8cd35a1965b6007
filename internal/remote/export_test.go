package remote

// FirstEfficiencyMember returns the member that the first call in efficiency mode asks, which
// is random.
func (b *Backend) FirstEfficiencyMember() string {
	return b.settings.endpoints[b.efficiency.next%len(b.settings.endpoints)]
}
