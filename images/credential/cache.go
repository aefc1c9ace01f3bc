// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"sync"
	"time"
)

// everything is the key of answers that are for every repository. No repository is called so.
const everything = "*"

// What a plugin's cache holds at most. An answer has a password of a few KiB, and a pod may name any number of repositories,
// each of which may have an answer of its own that lasts for years.
const (
	maxAnswers     = 1000
	maxAnswerBytes = 4 << 20 // of keys and configs
)

// cache keeps the answers of a plugin, the newest of them where there are too many. The zero value is empty.
type cache struct {
	mu      sync.Mutex // guards what follows
	answers map[cacheKey]cachedAnswer
	bytes   int    // of all answers
	puts    uint64 // how many there were
}

type cacheKey struct{ scope, key string }

type cachedAnswer struct {
	config Config
	until  time.Time
	bytes  int
	nth    uint64 // of the puts
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

// put keeps an answer for a while, and forgets those whose time is over, and the oldest that leave no room for it. One that takes
// a quarter of the room is not kept.
func (c *cache) put(scope, key string, config Config, keep time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := cacheKey{scope, key}
	c.remove(k)
	for k, a := range c.answers {
		if now.After(a.until) {
			c.remove(k)
		}
	}
	added := cachedAnswer{config: config, until: now.Add(keep), bytes: sizeOf(k, config), nth: c.puts}
	if keep <= 0 || added.bytes > maxAnswerBytes/4 {
		return
	}
	for len(c.answers) >= maxAnswers || c.bytes+added.bytes > maxAnswerBytes {
		c.remove(c.oldest())
	}
	if c.answers == nil {
		c.answers = make(map[cacheKey]cachedAnswer)
	}
	c.answers[k] = added
	c.bytes += added.bytes
	c.puts++
}

func (c *cache) remove(k cacheKey) {
	c.bytes -= c.answers[k].bytes
	delete(c.answers, k)
}

// oldest returns the key of the answer that was put first.
func (c *cache) oldest() (oldest cacheKey) {
	first := c.puts
	for k, a := range c.answers {
		if a.nth < first {
			oldest, first = k, a.nth
		}
	}
	return oldest
}

// sizeOf returns about how many bytes of memory an answer takes.
func sizeOf(k cacheKey, config Config) int {
	const perEntry = 200 // of a map
	n := perEntry + len(k.scope) + len(k.key)
	for registry, login := range config {
		n += perEntry + len(registry) + len(login.Username) + len(login.Password) + len(login.Email)
	}
	return n
}
