// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scene is a state at a time.
type scene struct {
	t   *testing.T
	s   sockets
	now time.Time
}

func newScene(t *testing.T) *scene {
	return &scene{t, sockets{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// sees simulates a scan of the directory. there maps the name of each socket to its inode.
func (s *scene) sees(there map[string]uint64) {
	ids := map[string]socketID{}
	for path, ino := range there {
		ids[path] = socketID{ino: ino}
	}
	s.s.setFound(ids, s.now)
}

// does starts the steps that are due, and returns their descriptions.
func (s *scene) does() (begun []string) {
	actions, _ := s.s.planSteps(s.now)
	for _, a := range actions {
		s.s[a.path].startStep(a.step)
		begun = append(begun, a.path+" "+[]string{"none", "register", "deregister", "cancel"}[a.step])
	}
	return begun
}

func (s *scene) ends(path string, err error) {
	s.s[path].finishStep(Plugin{Name: path}, errors.Is(err, errIgnored), ignoredIsNil(err), s.now)
}

func ignoredIsNil(err error) error {
	if errors.Is(err, errIgnored) {
		return nil
	}
	return err
}

func (s *scene) waits(want time.Duration) {
	s.t.Helper()
	actions, wake := s.s.planSteps(s.now)
	assert.Empty(s.t, actions)
	if want == 0 {
		assert.True(s.t, wake.IsZero(), "%v", wake)
		return
	}
	assert.Equal(s.t, want, wake.Sub(s.now))
	s.now = wake
}

func TestPlanRegistersAndDeregisters(t *testing.T) {
	s := newScene(t)
	s.sees(map[string]uint64{"a": 1, "b": 2})
	require.Equal(t, []string{"a register", "b register"}, s.does())
	require.Empty(t, s.does(), "one step at a time")
	s.ends("a", nil)
	require.Empty(t, s.does())
	s.sees(map[string]uint64{"b": 2})
	require.Equal(t, []string{"a deregister"}, s.does())
	s.ends("a", nil)
	require.Empty(t, s.does())
	require.NotContains(t, s.s, "a")
	s.ends("b", nil)
	s.waits(0)
}

// A new socket in place of a registered one is another plugin.
func TestPlanReplacesSocket(t *testing.T) {
	s := newScene(t)
	s.sees(map[string]uint64{"a": 1})
	s.does()
	s.ends("a", nil)
	s.sees(map[string]uint64{"a": 2})
	require.Equal(t, []string{"a deregister"}, s.does())
	s.sees(map[string]uint64{"a": 3})
	require.Empty(t, s.does())
	s.ends("a", nil)
	require.Equal(t, []string{"a register"}, s.does())
	s.sees(map[string]uint64{"a": 4})
	require.Equal(t, []string{"a cancel"}, s.does())
	require.Empty(t, s.does(), "once")
	s.ends("a", nil) // it was too late
	require.Equal(t, []string{"a deregister"}, s.does())
	s.ends("a", nil)
	require.Equal(t, []string{"a register"}, s.does())
	s.sees(nil)
	require.Equal(t, []string{"a cancel"}, s.does())
	s.ends("a", errors.New("canceled"))
	s.waits(0)
	require.Empty(t, s.s)
}

func TestPlanBackOff(t *testing.T) {
	s := newScene(t)
	s.sees(map[string]uint64{"a": 1})
	for _, want := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122000, 122000} {
		require.Equal(t, []string{"a register"}, s.does())
		s.ends("a", errors.New("hung"))
		s.waits(want * time.Millisecond)
	}
	s.does()
	s.ends("a", errors.New("hung"))
	s.sees(map[string]uint64{"a": 2})
	s.waits(500 * time.Millisecond) // a new socket
	require.Equal(t, []string{"a register"}, s.does())
	s.ends("a", nil)
	s.sees(map[string]uint64{"a": 3})
	require.Equal(t, []string{"a deregister"}, s.does())
	s.ends("a", nil)
	require.Equal(t, []string{"a register"}, s.does(), "after a success there is no back-off")
}

func TestPlanIgnoresPlugin(t *testing.T) {
	s := newScene(t)
	s.sees(map[string]uint64{"a": 1})
	s.does()
	s.ends("a", errIgnored)
	s.waits(0)
	s.sees(map[string]uint64{"a": 2})
	require.Equal(t, []string{"a register"}, s.does(), "the next one may be ours")
	s.ends("a", errIgnored)
	s.sees(nil)
	s.waits(0)
	require.Empty(t, s.s)
}

// After random changes, a plugin is registered at most once at a time and deregistered before its replacement. Finally exactly
// the existing sockets are registered.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newScene(t)
		there := map[string]uint64{}
		held := map[string]uint64{}     // registered with the handler
		under := map[string][2]uint64{} // steps under way and the inode that they are about
		apply := func(done []string) {
			for _, a := range done {
				var path, verb string
				_, err := fmt.Sscan(a, &path, &verb)
				require.NoError(t, err)
				switch verb {
				case "register":
					require.NotContains(t, held, path, "registered twice")
					under[path] = [2]uint64{1, there[path]}
				case "deregister":
					under[path] = [2]uint64{2, held[path]}
				}
			}
		}
		finish := func(path string, fail bool) {
			u := under[path]
			delete(under, path)
			switch {
			case u[0] == 2:
				delete(held, path)
				s.ends(path, nil)
			case fail:
				s.ends(path, errors.New("no"))
			default:
				held[path] = u[1]
				s.ends(path, nil)
			}
		}
		for range 200 {
			path := []string{"a", "b", "c"}[random.IntN(3)]
			switch random.IntN(5) {
			case 0:
				delete(there, path)
			case 1:
				there[path] = random.Uint64()
			case 2:
				s.now = s.now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			default:
				if _, ok := under[path]; ok {
					finish(path, random.IntN(2) == 0)
				}
			}
			s.sees(there)
			apply(s.does())
		}
		for range 20 {
			s.now = s.now.Add(3 * time.Minute)
			for path := range under {
				finish(path, false)
			}
			apply(s.does())
		}
		require.Equal(t, there, held, "seed %d", seed)
	}
}
