// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// Limits of an objectCache.
const (
	maxCachedObjects = 2000     // objects
	maxCacheBytes    = 64 << 20 // bytes of all files
	maxCachedFile    = 4 << 20  // bytes of one file: 1 MiB of data in base64, and metadata
)

// errCacheFull reports that an object is not stored, because the cache is full.
var errCacheFull = fmt.Errorf("%d objects or %d bytes are cached already", maxCachedObjects, maxCacheBytes)

// objectCache stores API objects on disk, so that a restarted agent can start containers while the API server is unavailable.
// Each object has one file that only the user of this process can read. The file name is a hash.
type objectCache struct {
	dir string

	mu    sync.Mutex // guards the fields below, and the files
	files map[string]cachedFile
	bytes int64
}

// cachedFile describes one file of an objectCache.
type cachedFile struct {
	size    int64  // bytes
	version string // resource version of the object; empty: a previous process wrote the file, and it was not decoded
}

// openObjectCache opens the cache in a directory, which it creates if necessary.
func openObjectCache(dir string) (*objectCache, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("object cache %q: must be absolute", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("object cache: %w", err)
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("object cache: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("object cache %s: it is %s", dir, info.Mode())
	}
	if err := ensurePrivate(dir, info); err != nil {
		return nil, fmt.Errorf("object cache %s: %w", dir, err)
	}
	k := &objectCache{dir: dir, files: map[string]cachedFile{}}
	// a file that is no cache file is an error, because the cache must not delete foreign files
	if err := k.scanDir(); err != nil {
		return nil, fmt.Errorf("object cache %s: %w", dir, err)
	}
	return k, nil
}

// scanDir records the cache files of earlier processes, and removes temporary files that a killed process left. It returns
// an error for any other file.
func (k *objectCache) scanDir() error {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), cacheFileSuffix)
		switch {
		case strings.HasPrefix(e.Name(), ".") && strings.Contains(e.Name(), cacheFileSuffix+".") && e.Type().IsRegular():
			if err := os.Remove(filepath.Join(k.dir, e.Name())); err != nil {
				return err
			}
		case !ok || len(base) != cacheNameLen || strings.Trim(base, "0123456789abcdef") != "" || !e.Type().IsRegular():
			return fmt.Errorf("%s is not a file of the cache: the directory must have no other use", e.Name())
		default:
			info, err := e.Info()
			if err != nil {
				return err
			}
			k.files[e.Name()] = cachedFile{size: info.Size()}
			k.bytes += info.Size()
		}
	}
	return nil
}

const (
	cacheFileSuffix = ".json"
	cacheNameLen    = 32 // hexadecimal digits of the hash in a file name
)

// cacheFileName returns the name of an object's cache file, a hash.
func cacheFileName(kind, key string) string {
	// namespace and name together can be too long for a file name
	sum := sha256.Sum256([]byte(kind + " " + key))
	return hex.EncodeToString(sum[:])[:cacheNameLen] + cacheFileSuffix
}

// cacheEntry is the JSON content of a cache file.
type cacheEntry struct {
	Kind   string          `json:"kind"`
	Key    string          `json:"key"`
	Object json.RawMessage `json:"object"`
}

// storeObject writes an object to the cache unless this version is cached. If the cache is full, it returns an error that
// wraps errCacheFull.
func (k *objectCache) storeObject(kind string, object kubeapi.Object) error {
	key := kubeapi.Key(object.GetNamespace(), object.GetName())
	name := cacheFileName(kind, key)
	k.mu.Lock()
	defer k.mu.Unlock()
	old, was := k.files[name]
	if was && old.version != "" && old.version == object.GetResourceVersion() {
		return nil
	}
	content, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("cache %s %s: %w", kind, key, err)
	}
	text, err := json.Marshal(cacheEntry{kind, key, content})
	if err != nil {
		return fmt.Errorf("cache %s %s: %w", kind, key, err)
	}
	size := int64(len(text))
	if !was && len(k.files) >= maxCachedObjects || k.bytes-old.size+size > maxCacheBytes || size > maxCachedFile {
		return errors.Join(fmt.Errorf("cache %s %s: %w", kind, key, errCacheFull), k.removeFileLocked(name))
	}
	if err := atomicfile.WriteFile(filepath.Join(k.dir, name), text, 0o600); err != nil {
		return fmt.Errorf("cache %s %s: %w", kind, key, err)
	}
	k.files[name] = cachedFile{size, object.GetResourceVersion()}
	k.bytes += size - old.size
	return nil
}

// loadObject decodes the cached copy of an API object. If there is no copy, the error wraps [fs.ErrNotExist].
func (k *objectCache) loadObject(kind, namespace, name string, object kubeapi.Object) error {
	key := kubeapi.Key(namespace, name)
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := plainfile.Read(filepath.Join(k.dir, cacheFileName(kind, key)), maxCachedFile)
	if err != nil {
		return err
	}
	var file cacheEntry
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("cached %s %s: its file is damaged", kind, key) // the error of json would quote the content, which may be a secret
	}
	if file.Kind != kind || file.Key != key {
		return fmt.Errorf("cached %s %s: its file has another object", kind, key)
	}
	if err := json.Unmarshal(file.Object, object); err != nil || object.GetNamespace() != namespace || object.GetName() != name {
		return fmt.Errorf("cached %s %s: its file is damaged", kind, key)
	}
	return nil
}

// removeObject deletes the cached copy of an API object, if there is one.
func (k *objectCache) removeObject(kind, namespace, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.removeFileLocked(cacheFileName(kind, kubeapi.Key(namespace, name)))
}

// removeFileLocked deletes a cache file, if it exists, and subtracts its size from the total. The caller holds the lock of the
// cache.
func (k *objectCache) removeFileLocked(name string) error {
	old, was := k.files[name]
	if !was {
		return nil
	}
	if err := notexist.Ignore(os.Remove(filepath.Join(k.dir, name))); err != nil {
		return fmt.Errorf("remove cached object: %w", err)
	}
	delete(k.files, name)
	k.bytes -= old.size
	return nil
}

// retainFiles deletes all cache files that are not in wanted.
func (k *objectCache) retainFiles(wanted map[string]bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for name := range k.files {
		if !wanted[name] {
			errs = append(errs, k.removeFileLocked(name))
		}
	}
	return errors.Join(errs...)
}

// minimalMeta returns the metadata to store in the cache: namespace, name, UID and resource version only.
func minimalMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
}
