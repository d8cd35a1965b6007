package tfstate

import (
	"strings"

	"github.com/leased-project/leased/lease"
)

// LockInfo is what Terraform and OpenTofu say about a lock.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   string
	Path      string
}

// maxField bounds a field in the metadata of a lease, which has room for all of them.
const maxField = 500

// fields returns pointers to the fields by their names in the metadata of a lease.
func (i *LockInfo) fields() map[string]*string {
	return map[string]*string{"id": &i.ID, "operation": &i.Operation, "info": &i.Info, "who": &i.Who,
		"version": &i.Version,
		"created": &i.Created, "path": &i.Path}
}

// metadata returns the metadata of the lease.
func (i LockInfo) metadata() map[string]string {
	metadata := map[string]string{}
	for key, field := range i.fields() {
		if *field != "" {
			metadata[key] = strings.ToValidUTF8((*field)[:min(len(*field), maxField)], "")
		}
	}
	return metadata
}

// infoOf returns the LockInfo of the holder of a lease. A holder that is not a run of
// Terraform has no ID.
func infoOf(holder lease.Party) LockInfo {
	var info LockInfo
	for key, field := range info.fields() {
		*field = holder.Metadata[key]
	}
	if info.Who == "" {
		info.Who = holder.Holder
	}
	return info
}
