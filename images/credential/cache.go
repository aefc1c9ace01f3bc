// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"maps"
	"sync"
	"time"
)

// everything is the key of answers that are for every repository. No repository is called so.
const everything = "*"

// cache keeps the answers of a plugin. The zero value is empty.
type cache struct {
	mu      sync.Mutex // guards answers
	answers map[cacheKey]cachedAnswer
}

type cacheKey struct{ scope, key string }

type cachedAnswer struct {
	config Config
	until  time.Time
}

// get looks for an answer about the repository, then about its registry, then about everything.
func (c *cache) get(scope, repository, registry string, now time.Time) (Config, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range []string{repository, registry, everything} {
		if a, ok := c.answers[cacheKey{scope, key}]; ok && !now.After(a.until) {
			return a.config, true
		}
	}
	return nil, false
}

// put keeps an answer for a while, and forgets those whose time is over.
func (c *cache) put(scope, key string, config Config, keep time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.answers, func(_ cacheKey, a cachedAnswer) bool { return now.After(a.until) })
	if keep <= 0 {
		return
	}
	if c.answers == nil {
		c.answers = make(map[cacheKey]cachedAnswer)
	}
	c.answers[cacheKey{scope, key}] = cachedAnswer{config: config, until: now.Add(keep)}
}
