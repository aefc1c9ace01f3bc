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

// scene holds the sockets at a simulated time.
type scene struct {
	t   *testing.T
	s   sockets
	now time.Time
}

func newScene(t *testing.T) *scene {
	return &scene{t, sockets{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// scan simulates a scan of the directory. existing has the inode of each socket by its name.
func (s *scene) scan(existing map[string]uint64) {
	ids := map[string]socketID{}
	for path, ino := range existing {
		ids[path] = socketID{ino: ino}
	}
	s.s.setFound(ids, s.now)
}

// startSteps starts the due steps, and returns their descriptions.
func (s *scene) startSteps() (begun []string) {
	actions, _ := s.s.planSteps(s.now)
	for _, a := range actions {
		s.s[a.path].startStep(a.step)
		begun = append(begun, a.path+" "+[]string{"none", "register", "deregister", "cancel"}[a.step])
	}
	return begun
}

func (s *scene) finishStep(path string, err error) {
	s.s[path].finishStep(Plugin{Name: path}, errors.Is(err, errIgnored), ignoredIsNil(err), s.now)
}

func ignoredIsNil(err error) error {
	if errors.Is(err, errIgnored) {
		return nil
	}
	return err
}

func (s *scene) requireWake(want time.Duration) {
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
	s.scan(map[string]uint64{"a": 1, "b": 2})
	require.Equal(t, []string{"a register", "b register"}, s.startSteps())
	require.Empty(t, s.startSteps(), "one step at a time per plugin")
	s.finishStep("a", nil)
	require.Empty(t, s.startSteps())
	s.scan(map[string]uint64{"b": 2})
	require.Equal(t, []string{"a deregister"}, s.startSteps())
	s.finishStep("a", nil)
	require.Empty(t, s.startSteps())
	require.NotContains(t, s.s, "a")
	s.finishStep("b", nil)
	s.requireWake(0)
}

// A new socket in place of a registered one belongs to another plugin.
func TestPlanReplacesSocket(t *testing.T) {
	s := newScene(t)
	s.scan(map[string]uint64{"a": 1})
	s.startSteps()
	s.finishStep("a", nil)
	s.scan(map[string]uint64{"a": 2})
	require.Equal(t, []string{"a deregister"}, s.startSteps())
	s.scan(map[string]uint64{"a": 3})
	require.Empty(t, s.startSteps())
	s.finishStep("a", nil)
	require.Equal(t, []string{"a register"}, s.startSteps())
	s.scan(map[string]uint64{"a": 4})
	require.Equal(t, []string{"a cancel"}, s.startSteps())
	require.Empty(t, s.startSteps(), "a step is canceled once")
	s.finishStep("a", nil) // the cancellation came too late
	require.Equal(t, []string{"a deregister"}, s.startSteps())
	s.finishStep("a", nil)
	require.Equal(t, []string{"a register"}, s.startSteps())
	s.scan(nil)
	require.Equal(t, []string{"a cancel"}, s.startSteps())
	s.finishStep("a", errors.New("canceled"))
	s.requireWake(0)
	require.Empty(t, s.s)
}

func TestPlanBackOff(t *testing.T) {
	s := newScene(t)
	s.scan(map[string]uint64{"a": 1})
	for _, want := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122000, 122000} {
		require.Equal(t, []string{"a register"}, s.startSteps())
		s.finishStep("a", errors.New("hung"))
		s.requireWake(want * time.Millisecond)
	}
	s.startSteps()
	s.finishStep("a", errors.New("hung"))
	s.scan(map[string]uint64{"a": 2})
	s.requireWake(500 * time.Millisecond) // the back-off of a new socket starts again
	require.Equal(t, []string{"a register"}, s.startSteps())
	s.finishStep("a", nil)
	s.scan(map[string]uint64{"a": 3})
	require.Equal(t, []string{"a deregister"}, s.startSteps())
	s.finishStep("a", nil)
	require.Equal(t, []string{"a register"}, s.startSteps(), "after a success there is no back-off")
}

func TestPlanIgnoresPlugin(t *testing.T) {
	s := newScene(t)
	s.scan(map[string]uint64{"a": 1})
	s.startSteps()
	s.finishStep("a", errIgnored)
	s.requireWake(0)
	s.scan(map[string]uint64{"a": 2})
	require.Equal(t, []string{"a register"}, s.startSteps(), "a new socket of an ignored plugin is examined")
	s.finishStep("a", errIgnored)
	s.scan(nil)
	s.requireWake(0)
	require.Empty(t, s.s)
}

// During random changes, a plugin is registered at most once at a time and deregistered before its replacement. At the end
// exactly the existing sockets are registered.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newScene(t)
		existing := map[string]uint64{}
		registered := map[string]uint64{} // inodes of the registered plugins
		running := map[string][2]uint64{} // running steps: 1 registers and 2 deregisters, with the inode of the plugin
		apply := func(done []string) {
			for _, a := range done {
				var path, verb string
				_, err := fmt.Sscan(a, &path, &verb)
				require.NoError(t, err)
				switch verb {
				case "register":
					require.NotContains(t, registered, path, "registered twice")
					running[path] = [2]uint64{1, existing[path]}
				case "deregister":
					running[path] = [2]uint64{2, registered[path]}
				}
			}
		}
		finish := func(path string, fail bool) {
			u := running[path]
			delete(running, path)
			switch {
			case u[0] == 2:
				delete(registered, path)
				s.finishStep(path, nil)
			case fail:
				s.finishStep(path, errors.New("no"))
			default:
				registered[path] = u[1]
				s.finishStep(path, nil)
			}
		}

		for range 200 {
			path := []string{"a", "b", "c"}[random.IntN(3)]
			switch random.IntN(5) {
			case 0:
				delete(existing, path)
			case 1:
				existing[path] = random.Uint64()
			case 2:
				s.now = s.now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			default:
				if _, ok := running[path]; ok {
					finish(path, random.IntN(2) == 0)
				}
			}
			s.scan(existing)
			apply(s.startSteps())
		}

		for range 20 {
			s.now = s.now.Add(3 * time.Minute)
			for path := range running {
				finish(path, false)
			}
			apply(s.startSteps())
		}
		require.Equal(t, existing, registered, "seed %d", seed)
	}
}
