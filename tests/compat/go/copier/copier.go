// Package copier reads the commands and prints the lines of a copier; ../../copiers/launch.py documents them.
package copier

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// FencedExit is the exit code of a copier that was fenced.
const FencedExit = 3

// Commands holds the arguments and the state that the commands set.
type Commands struct {
	settings map[string]string
	dice     *rand.Rand
	hold     atomic.Value
	stopped  atomic.Bool
	resumed  chan struct{}
}

// New reads the arguments, which are all of the form key=value, and starts to read commands.
func New() *Commands {
	commands := &Commands{settings: map[string]string{}, resumed: make(chan struct{}, 16)}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		commands.settings[key] = value
	}
	commands.dice = rand.New(rand.NewSource(int64(commands.Number("seed"))))
	commands.hold.Store("")
	go commands.read()
	return commands
}

func (c *Commands) read() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if phase, found := strings.CutPrefix(lines.Text(), "hold "); found {
			c.hold.Store(phase)
		} else {
			c.resume()
		}
	}
	c.stopped.Store(true)
	c.resume()
}

func (c *Commands) resume() {
	c.hold.Store("")
	c.resumed <- struct{}{}
}

// Stopped reports whether standard input has ended.
func (c *Commands) Stopped() bool { return c.stopped.Load() }

// Text returns an argument.
func (c *Commands) Text(key string) string { return c.settings[key] }

// Number returns an argument that is a number.
func (c *Commands) Number(key string) int {
	number, err := strconv.Atoi(c.settings[key])
	if err != nil {
		panic(err)
	}
	return number
}

// Partitions returns the input partitions.
func (c *Commands) Partitions() []int32 {
	var found []int32
	for _, text := range strings.Split(c.settings["partitions"], ",") {
		if number, err := strconv.Atoi(text); err == nil {
			found = append(found, int32(number))
		}
	}
	return found
}

// Fate decides how the next transaction ends.
func (c *Commands) Fate() string {
	if c.dice.Intn(100) < c.Number("aborts") {
		return "abort"
	}
	return "commit"
}

// Copied returns the value of the copy, and its partition.
func (c *Commands) Copied(value string, number int, fate string) (string, int32) {
	_, index, _ := strings.Cut(value, ".")
	parsed, err := strconv.Atoi(index)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s|%s-%d|%s", value, c.Text("label"), number, fate), int32(parsed % c.Number("outputs"))
}

// Phase prints the phase, and waits where it is to be held.
func (c *Commands) Phase(name string, number int, what any) {
	Print("%s %d %v", name, number, what)
	if c.hold.Load() == name {
		Print("held %s %d", name, number)
		<-c.resumed
	}
}

// Print prints one line.
func Print(format string, arguments ...any) {
	fmt.Println(strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, arguments...)), "\n", " "))
}

// Fenced ends the program.
func Fenced() {
	Print("fenced")
	os.Exit(FencedExit)
}
