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

// maxServiceCacheBytes limits the file of a serviceCache, in bytes: enough for about 50,000 services.
const maxServiceCacheBytes = 8 << 20

// serviceCache stores the services of namespaces with pods in one file. A restarted agent reads them to build environment
// variables while the API server is unavailable. A nil serviceCache is empty and stores nothing.
type serviceCache struct {
	path string

	mu          sync.Mutex // guards the fields below, and the file
	byNamespace map[string][]service
}

// openServiceCache reads the cache file, which need not exist. For invalid content it returns an empty cache and the
// reason.
func openServiceCache(path string) (cache *serviceCache, invalid, err error) {
	if !filepath.IsAbs(path) {
		return nil, nil, fmt.Errorf("service cache %q: must be absolute", path)
	}
	cache = &serviceCache{path: path, byNamespace: map[string][]service{}}
	text, err := plainfile.Read(path, maxServiceCacheBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cache, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("service cache: %w", err)
	}
	known := map[string][]service{}
	if err := json.Unmarshal(text, &known); err != nil {
		return cache, fmt.Errorf("service cache %s: %w", path, err), nil
	}
	cache.byNamespace = known
	return cache, nil, nil
}

// getServices returns the cached services of a namespace. ok is false if the cache has no entry for the namespace, or if k
// is nil.
func (k *serviceCache) getServices(namespace string) (stored []service, ok bool) {
	if k == nil {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok := k.byNamespace[namespace]
	return slices.Clone(found), ok
}

// storeServices replaces the cached services of a namespace, and writes the file if they have changed. A nil cache does
// nothing.
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

// retainNamespaces deletes the cached services of all namespaces that are not in namespaces. If k is nil, it does nothing.
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

// writeFile replaces the content of the cache and its file. The caller holds the lock of the cache.
func (k *serviceCache) writeFile(services map[string][]service) error {
	text, err := json.Marshal(services)
	if err != nil {
		return err
	}
	if len(text) > maxServiceCacheBytes {
		return fmt.Errorf("the file would be larger than %d bytes", maxServiceCacheBytes)
	}
	if err := atomicfile.WriteFile(k.path, text, 0o600); err != nil {
		return err
	}
	k.byNamespace = services
	return nil
}
