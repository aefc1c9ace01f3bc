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

// errPattern leaves out the text: it is the key of an entry with a password.
var errPattern = errors.New("not a registry, with or without a port and a path")

// hubKey is the entry for Docker Hub. Others, as "docker.io", match names of images as any registry does.
const hubKey = "index.docker.io"

// Keyring holds credentials under the patterns that say which repositories they are for. The zero value is empty.
type Keyring struct {
	entries []entry // by key, backwards, so that a longer key comes before its beginning
}

// entry is what is held under one key.
type entry struct {
	key         string
	pattern     pattern
	credentials []Credential
}

// Add puts the credentials of a configuration on the keyring, behind those that are there under the same key. The
// error names keys that are no pattern; they are left out, and the others take effect.
func (k *Keyring) Add(config Config, source Source) error {
	var errs []error
	for i, name := range slices.Sorted(maps.Keys(config)) {
		login := config[name]
		c := Credential{Username: login.Username, Password: login.Password, Email: login.Email, Source: source}
		key, err := patternKey(name)
		if err == nil {
			err = k.add(key, c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("auths: key %d in alphabetical order: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keyring) add(key string, c Credential) error {
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
	k.entries[i].credentials = append(k.entries[i].credentials, c)
	return nil
}

// Lookup returns the credentials for a repository, such as "docker.io/library/busybox", in the order in which they are
// to be tried: those under longer keys with the same beginning come first. A repository of Docker Hub that nothing
// matches gets those under "index.docker.io", which is how docker writes them. What the registry is, [reference.Split]
// says: "busybox" is one of Docker Hub, "localhost/busybox" is not.
func (k *Keyring) Lookup(repository string) []Credential {
	target, registry, err := parseTarget(repository)
	if err != nil {
		return nil
	}
	var found []Credential
	for _, e := range k.entries {
		if e.pattern.matches(target) {
			found = append(found, e.credentials...)
		}
	}
	if len(found) > 0 || registry != reference.DockerHub {
		return found
	}
	for _, e := range k.entries {
		if e.key == hubKey {
			return slices.Clone(e.credentials)
		}
	}
	return nil
}

// String tells how many keys there are, and nothing of what they open.
func (k *Keyring) String() string { return fmt.Sprintf("keyring of %d keys", len(k.entries)) }

// GoString is String.
func (k *Keyring) GoString() string { return k.String() }
