// Package report prints a line for each check: "PASS name" or "FAIL name: why".
package report

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// Check runs one check; a panic is how it fails, too.
func Check(name string, check func() error) {
	fmt.Println(result(name, check))
}

func result(name string, check func() error) (line string) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", name, problem, debug.Stack())
			line = fmt.Sprintf("FAIL %s: panic: %v", name, problem)
		}
	}()
	if err := check(); err != nil {
		return fmt.Sprintf("FAIL %s: %s", name, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return "PASS " + name
}

// Equal says what differs.
func Equal(what string, found, expected any) error {
	if fmt.Sprint(found) != fmt.Sprint(expected) {
		return fmt.Errorf("%s: expected %v, found %v", what, expected, found)
	}
	return nil
}

// First is the first error that is one.
func First(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
