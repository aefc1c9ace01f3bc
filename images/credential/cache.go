// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"sync"
	"time"
)

// globalCacheKey is the cache key of responses that are valid for all repositories. It is no valid repository name.
const globalCacheKey = "*"

// The limits of the cache of one plugin. They are necessary because pods may name any number of repositories, each with a
// cached response that is valid for years.
const (
	maxCachedResponses = 1000
	maxCacheBytes      = 4 << 20 // estimated size of keys and values
)

// responseCache caches the responses of a plugin. If it is full, it removes the oldest responses. The zero value is empty.
type responseCache struct {
	mu        sync.Mutex // guards all below
	responses map[responseKey]cachedResponse
	totalSize int    // sum of the sizes of all responses
	putCount  uint64 // number of calls of put that stored a response
}

type responseKey struct{ scope, key string }

type cachedResponse struct {
	config   Config
	expires  time.Time
	size     int
	sequence uint64 // value of putCount when it was stored
}

// get returns a cached response of this scope that has not expired: for the repository, its registry, or all repositories.
func (c *responseCache) get(scope, repository, registry string, now time.Time) (config Config, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range []string{repository, registry, globalCacheKey} {
		if a, ok := c.responses[responseKey{scope, key}]; ok && !now.After(a.expires) {
			return a.config, true
		}
	}
	return nil, false
}

// put caches the credentials for the given duration. If the cache is full, it first removes the oldest ones.
func (c *responseCache) put(scope, key string, config Config, duration time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := responseKey{scope, key}
	c.removeKey(k)
	for k, a := range c.responses {
		if now.After(a.expires) {
			c.removeKey(k)
		}
	}
	added := cachedResponse{config: config, expires: now.Add(duration), size: estimateSize(k, config), sequence: c.putCount}
	if duration <= 0 || added.size > maxCacheBytes/4 {
		return
	}
	for len(c.responses) >= maxCachedResponses || c.totalSize+added.size > maxCacheBytes {
		c.removeKey(c.oldestKey())
	}
	if c.responses == nil {
		c.responses = make(map[responseKey]cachedResponse)
	}
	c.responses[k] = added
	c.totalSize += added.size
	c.putCount++
}

func (c *responseCache) removeKey(key responseKey) {
	c.totalSize -= c.responses[key].size
	delete(c.responses, key)
}

// oldestKey returns the key of the response that was cached first.
func (c *responseCache) oldestKey() (oldest responseKey) {
	first := c.putCount
	for k, a := range c.responses {
		if a.sequence < first {
			oldest, first = k, a.sequence
		}
	}
	return oldest
}

// estimateSize returns approximately how many bytes of memory a cached response needs.
func estimateSize(key responseKey, config Config) int {
	const perEntry = 200 // overhead of a map entry
	size := perEntry + len(key.scope) + len(key.key)
	for registry, login := range config {
		size += perEntry + len(registry) + len(login.Username) + len(login.Password) + len(login.Email)
	}
	return size
}
