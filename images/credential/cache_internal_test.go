// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The cache stays within its limits of bytes and entries. A new response is found, unless its duration is zero or it is too
// large; then the previous response for its key is removed.
func TestCacheIsBounded(t *testing.T) {
	for _, largest := range []int{100, 10_000, 2 << 20} {
		t.Run(fmt.Sprint(largest), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(22, uint64(largest)))
			now := time.Now()
			var c responseCache
			newest := ""
			for i := range 3000 {
				key := fmt.Sprintf("registry.example/image-%d", rnd.IntN(2500))
				config := Config{"registry.example": {Username: fmt.Sprint(i), Password: strings.Repeat("p", rnd.IntN(largest))}}
				keep := time.Duration(rnd.IntN(int(time.Hour)))
				if rnd.IntN(3) == 0 {
					keep = 100 * 365 * 24 * time.Hour
				}
				c.put("scope", key, config, keep, now)
				got, found := c.get("scope", key, "", now)
				if keeps := keep > 0 && estimateSize(responseKey{"scope", key}, config) <= maxCacheBytes/4; keeps {
					require.True(t, found)
					require.Equal(t, config, got)
					newest = key
				} else {
					require.False(t, found, "a response that is not cached removes the previous one")
				}
				if i%100 == 0 {
					now = now.Add(time.Minute)
				}
				bytes := 0
				for k, a := range c.responses {
					bytes += estimateSize(k, a.config)
				}
				require.Equal(t, bytes, c.totalSize)
				require.LessOrEqual(t, c.totalSize, maxCacheBytes)
				require.LessOrEqual(t, len(c.responses), maxCachedResponses)
			}
			require.NotEmpty(t, newest)
		})
	}
}
