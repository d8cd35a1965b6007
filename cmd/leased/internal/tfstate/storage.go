package tfstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/objectgate"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

// Storage keeps a document for each resource.
type Storage interface {
	// Update replaces the document by what change returns for it, in one atomic step
	// with the check of the token. It may call change more than once. A document that
	// does not exist is nil.
	Update(ctx context.Context, resource fencing.Resource, token fencing.Token, change func(old []byte) ([]byte,
		error)) error
	// Read returns the document, nil if there is none.
	Read(ctx context.Context, resource fencing.Resource) ([]byte, error)
}

// Files returns the Storage in a folder, which it creates. Only their owner can read the files, also in a folder that
// existed before.
func Files(dir string) (Storage, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the states: %w", err)
	}
	gate, err := filegate.NewPrivate(dir, fencing.Rule{})
	return files{gate}, err
}

type files struct{ gate *filegate.Gate }

func (f files) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	return f.gate.Do(ctx, resource, token, func(file *filegate.File) error {
		document, err := file.Current()
		if err == nil {
			document, err = change(document)
		}
		if err == nil {
			_, err = file.Write(document)
		}
		return err
	})
}

func (f files) Read(_ context.Context, resource fencing.Resource) ([]byte, error) {
	document, err := os.ReadFile(f.gate.Path(resource))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return document, err
}

// Objects returns the Storage behind a gate of an S3 bucket.
func Objects(gate *objectgate.Gate) Storage { return objects{gate} }

type objects struct{ gate *objectgate.Gate }

func (o objects) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	return o.gate.Do(ctx, resource, token, func(tx *objectgate.Tx) error {
		document, err := tx.Read()
		if err == nil {
			document, err = change(document)
		}
		if err == nil {
			tx.Write(document)
		}
		return err
	})
}

func (o objects) Read(ctx context.Context, resource fencing.Resource) ([]byte, error) {
	return o.gate.Read(ctx, resource)
}

// Postgres returns the Storage in the table leased_tfstate of a database. It creates
// the table and the marks.
func Postgres(ctx context.Context, pool *pgxpool.Pool) (Storage, error) {
	gate := pgxgate.New(pool, fencing.Rule{})
	if err := gate.Install(ctx); err != nil {
		return nil, err
	}
	_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS leased_tfstate
		(resource text COLLATE "C" PRIMARY KEY, document bytea NOT NULL)`)
	if err != nil {
		return nil, fmt.Errorf("create the table of the states: %w", err)
	}
	return postgres{gate, pool}, nil
}

type postgres struct {
	gate *pgxgate.Gate
	pool *pgxpool.Pool
}

const selectDocument = `SELECT document FROM leased_tfstate WHERE resource = $1`

func (p postgres) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	return p.gate.Do(ctx, resource, token, func(tx pgxgate.Tx) error {
		document, err := scan(tx.QueryRow(ctx, selectDocument, string(resource)))
		if err == nil {
			document, err = change(document)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO leased_tfstate VALUES ($1, $2)
				ON CONFLICT (resource) DO UPDATE SET document = $2`, string(resource), document)
		}
		return err
	})
}

func (p postgres) Read(ctx context.Context, resource fencing.Resource) ([]byte, error) {
	return scan(p.pool.QueryRow(ctx, selectDocument, string(resource)))
}

func scan(row pgx.Row) (document []byte, err error) {
	if err = row.Scan(&document); errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return document, err
}
