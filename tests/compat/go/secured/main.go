// Go's clients on a secured broker: secured CLIENT CASES, where CLIENT is franz or sarama and CASES a file of JSON, whose
// fields are those of Case. Prints a line for each case: "PASS name" or "FAIL name: why".
package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"compat/copier"
)

const waitS = 30

// Case is one way to authenticate, and the topic to write to and to read from.
type Case struct {
	Name, Bootstrap, Topic, Mechanism, User, Secret, CA, Identity string
	Refused                                                       bool
}

var hashes = map[string]any{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New}

func (c *Case) tls() *tls.Config {
	authority, err := os.ReadFile(c.CA)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(authority)
	if c.Identity != "" {
		identity, err := tls.LoadX509KeyPair(c.Identity, c.Identity)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{identity}
	}
	return config
}

// values are those that each case writes, and then reads.
func (c *Case) values() []string {
	return []string{c.Name + "-0", c.Name + "-1", c.Name + "-2"}
}

func (c *Case) compare(found []string) error {
	if strings.Join(found, " ") != strings.Join(c.values(), " ") {
		return fmt.Errorf("read %v", found)
	}
	return nil
}

func (c *Case) limit() time.Duration {
	if c.Refused {
		return 10 * time.Second
	}
	return waitS * time.Second
}

func main() {
	run, found := map[string]func(*Case) error{"franz": franz, "sarama": viaSarama}[os.Args[1]]
	if !found {
		panic(errors.New("the client is franz or sarama"))
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	var cases []Case
	if err := json.Unmarshal(text, &cases); err != nil {
		panic(err)
	}
	for at := range cases {
		if err := run(&cases[at]); err != nil {
			copier.Print("FAIL %s: %v", cases[at].Name, err)
		} else {
			copier.Print("PASS %s", cases[at].Name)
		}
	}
}
