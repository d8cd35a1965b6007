package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// newGateDDL returns the command that prints the SQL of a gate.
func newGateDDL() *cobra.Command {
	var dialect string
	var table sqlgate.GuardedTable
	var maxJump uint64
	c := &cobra.Command{
		Use: "ddl --dialect postgres|mysql|sqlite", Short: "Print the SQL of a gate",
		Long: "Print the SQL that creates the table of marks and its functions, for psql, mariadb or sqlite3. With\n" +
			"--guard-table, print triggers for one of your tables instead: they reject rows with a stale token even\n" +
			"if the code that writes them does not check it.",
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
	c.Flags().StringVar(&dialect, "dialect", "", "database: postgres, mysql or sqlite (required)")
	c.Flags().StringVar(&table.Table, "guard-table", "", "print triggers that guard this table")
	c.Flags().StringVar(&table.Column, "guard-column", "", "column with the resource name of a row")
	c.Flags().StringVar(&table.Prefix, "guard-prefix", "", "prefix of the resource name, before the column's value")
	c.Flags().Uint64Var(&maxJump, "guard-max-jump", 0, "largest allowed difference between a row's token and the mark, 0 for no limit (mysql, sqlite)")
	return c
}

func gateSQL(dialect sqlgate.Dialect, table sqlgate.GuardedTable) (string, error) {
	if table == (sqlgate.GuardedTable{}) {
		return sqlgate.DDL(dialect)
	}
	if table.Table == "" || table.Column == "" {
		return "", fmt.Errorf("--guard-table and --guard-column must be given together")
	}
	return sqlgate.Guard(dialect, table)
}
