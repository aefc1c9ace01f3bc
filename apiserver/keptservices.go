// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// maxKeptServices bounds the file of services, in bytes: some 50,000 of them.
const maxServiceCacheBytes = 8 << 20

// keptServices has the services of those namespaces whose pods have got variables of them in a file, for an agent that is started
// while the API server is away. A nil one has none.
type serviceCache struct {
	path string

	mu          sync.Mutex // guards what follows, and the file
	byNamespace map[string][]service
}

// openServices reads the file, which need not exist. One that is damaged is as none, and the error says so; no error is that the path
// cannot be used.
func openServiceCache(path string) (k *serviceCache, damaged, err error) {
	if !filepath.IsAbs(path) {
		return nil, nil, fmt.Errorf("file of kept services %q: must be absolute", path)
	}
	k = &serviceCache{path: path, byNamespace: map[string][]service{}}
	text, err := plainfile.Read(path, maxServiceCacheBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("file of kept services: %w", err)
	}
	known := map[string][]service{}
	if err := json.Unmarshal(text, &known); err != nil {
		return k, fmt.Errorf("file of kept services %s: %w", path, err), nil
	}
	k.byNamespace = known
	return k, nil, nil
}

// get returns the services of a namespace, and whether they are known.
func (k *serviceCache) getServices(namespace string) ([]service, bool) {
	if k == nil {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.byNamespace[namespace]
	return slices.Clone(found), ok
}

// put keeps the services of a namespace, unless they are kept as they are. What there is no room for is not kept.
func (k *serviceCache) storeServices(namespace string, found []service) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, ok := k.byNamespace[namespace]; ok && (len(before) == 0 && len(found) == 0 || reflect.DeepEqual(before, found)) {
		return nil
	}
	next := maps.Clone(k.byNamespace)
	next[namespace] = found
	return k.writeFile(next)
}

// retain forgets all namespaces but some.
func (k *serviceCache) retainNamespaces(namespaces map[string]bool) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := maps.Clone(k.byNamespace)
	maps.DeleteFunc(next, func(namespace string, _ []service) bool { return !namespaces[namespace] })
	if len(next) == len(k.byNamespace) {
		return nil
	}
	return k.writeFile(next)
}

// write replaces the file. The caller has the lock.
func (k *serviceCache) writeFile(next map[string][]service) error {
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if len(text) > maxServiceCacheBytes {
		return fmt.Errorf("the file would be larger than %d bytes", maxServiceCacheBytes)
	}
	if err := atomicfile.WriteFile(k.path, text, 0o600); err != nil {
		return err
	}
	k.byNamespace = next
	return nil
}
