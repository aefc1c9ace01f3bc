// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/internal/reference"
)

// errInvalidPattern does not quote the pattern, because it is the key of an entry with a password.
var errInvalidPattern = errors.New("not a registry, with or without a port and a path")

// dockerHubKey is docker's entry for Docker Hub. All other keys, including "docker.io", match image names as for any registry.
const dockerHubKey = "index.docker.io"

// Keyring holds credentials with the patterns of the repositories that they are for. The zero value is empty.
type Keyring struct {
	entries []entry // sorted by key in descending order, so that a longer key precedes its prefixes
}

// entry holds the credentials of one key.
type entry struct {
	key         string
	pattern     registryPattern
	credentials []Credential
}

// Add adds the credentials in config, with source as their origin, to the keyring. Credentials that the keyring already has
// for a key are tried first. Add skips invalid keys, and the error reports them.
func (k *Keyring) Add(config Config, source Source) error {
	var errs []error
	for i, name := range slices.Sorted(maps.Keys(config)) {
		login := config[name]
		c := Credential{Username: login.Username, Password: login.Password, Email: login.Email, Source: source}
		key, err := normalizeKey(name)
		if err == nil {
			err = k.addCredential(key, c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("auths: key %d in alphabetical order: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keyring) addCredential(key string, added Credential) error {
	i, found := slices.BinarySearchFunc(k.entries, key, func(e entry, key string) int {
		return strings.Compare(key, e.key)
	})
	if !found {
		p, err := parsePattern(key)
		if err != nil {
			return err
		}
		k.entries = slices.Insert(k.entries, i, entry{key: key, pattern: p})
	}
	k.entries[i].credentials = append(k.entries[i].credentials, added)
	return nil
}

// Lookup returns the credentials for a repository such as "docker.io/library/busybox", in the order to try them: credentials
// of a longer key precede those of its prefixes. A repository without a registry, such as "busybox", is on Docker Hub.
func (k *Keyring) Lookup(repository string) []Credential {
	target, registry, err := parseTarget(repository)
	if err != nil {
		return nil
	}
	var found []Credential
	for _, e := range k.entries {
		if e.pattern.matchesTarget(target) {
			found = append(found, e.credentials...)
		}
	}
	if len(found) > 0 || registry != reference.DockerHub {
		return found
	}
	for _, e := range k.entries {
		if e.key == dockerHubKey {
			return slices.Clone(e.credentials)
		}
	}
	return nil
}

// String returns the number of keys and shows no credentials.
func (k *Keyring) String() string { return fmt.Sprintf("keyring of %d keys", len(k.entries)) }

// GoString returns the same text as String, so that %#v does not print the credentials.
func (k *Keyring) GoString() string { return k.String() }
