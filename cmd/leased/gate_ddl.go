package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// newGateDDL prints what a database needs to be a gate.
func newGateDDL() *cobra.Command {
	var dialect string
	var table sqlgate.GuardedTable
	var maxJump uint64
	c := &cobra.Command{
		Use: "ddl --dialect postgres|mysql|sqlite", Short: "Print the SQL of a gate",
		Long: "Prints the table of the marks and what belongs to it, ready for psql, mariadb or sqlite3.\n" +
			"With --guard-table it prints triggers for a table of yours instead: a row then cannot be\n" +
			"written under a stale token even by code that forgot to check.",
		Example: "  leased gate ddl --dialect postgres | psql mydb\n" +
			"  leased gate ddl --dialect postgres --guard-table orders --guard-column id --guard-prefix orders/",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dialect == "" {
				return usageError(fmt.Errorf("--dialect is required: postgres, mysql or sqlite"))
			}
			parsed, err := sqlgate.ParseDialect(dialect)
			if err != nil {
				return usageError(fmt.Errorf("--dialect: %w", err))
			}
			table.MaxJump = fencing.Token(maxJump)
			text, err := gateSQL(parsed, table)
			if err != nil {
				return usageError(err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&dialect, "dialect", "", "kind of database: postgres, mysql or sqlite")
	c.Flags().StringVar(&table.Table, "guard-table", "", "print triggers that guard this table")
	c.Flags().StringVar(&table.Column, "guard-column", "", "the column that names the resource of a row")
	c.Flags().StringVar(&table.Prefix, "guard-prefix", "", "what stands before the column's text in the name of the resource")
	c.Flags().Uint64Var(&maxJump, "guard-max-jump", 0, "bound on the jump of tokens that rows carry, 0 for none (mysql, sqlite)")
	return c
}

func gateSQL(dialect sqlgate.Dialect, table sqlgate.GuardedTable) (string, error) {
	if table == (sqlgate.GuardedTable{}) {
		return sqlgate.DDL(dialect)
	}
	if table.Table == "" || table.Column == "" {
		return "", fmt.Errorf("--guard-table and --guard-column belong together; give both")
	}
	return sqlgate.Guard(dialect, table)
}
