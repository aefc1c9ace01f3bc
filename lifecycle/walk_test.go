// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

const walkSteps = 200 // of each seed

// walkSeeds is how many walks there are: NODEAGENT_WALKS says so, 500 of which are 100,000 steps.
func walkSeeds(t *testing.T) uint64 {
	if s := os.Getenv("NODEAGENT_WALKS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		require.NoError(t, err, "NODEAGENT_WALKS")
		return n
	}
	if testing.Short() {
		return 5
	}
	return 15
}

// TestRandomWalk lets containers die, hooks and probes fail, calls fail, hang, come late or lose their answers, specs
// change, sandboxes break, pods come and go, and agents die between any two calls. Each call and each status is held
// against what must never be; and at the end, when the faults stop, everything is as the specs want it.
func TestRandomWalk(t *testing.T) {
	for seed := range walkSeeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, seed) })
		})
	}
}

func walk(t *testing.T, seed uint64) {
	w := &walker{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		pods: map[string]*corev1.Pod{}, watch: newWatch(t, seed%2 == 0), history: newHistory(t),
	}
	w.rt = critest.New(critest.Options{Script: w.script})
	w.watch.rt = w.rt
	w.boot()
	for range walkSteps {
		w.step()
		pause := time.Duration(w.intn(5000)) * time.Millisecond
		if w.chance(5) {
			pause *= 20
		}
		time.Sleep(pause)
		if w.agent.dead.Load() {
			w.boot()
		}
		w.watch.requireNoTwins()
		if t.Failed() {
			t.FailNow()
		}
	}
	w.heal()
	time.Sleep(40 * time.Minute) // hung calls end, back-offs run out
	w.requireConverged()

	last := maps.Clone(w.pods)
	clear(w.pods)
	w.apply()
	time.Sleep(5 * time.Minute)
	w.requireNothingLeft(last)
	w.agent.stop()
}

// walker is a node and those who work against it.
type walker struct {
	t     *testing.T
	rt    *critest.Runtime
	dir   string
	agent *mortal
	watch *watch
	*history
	pods map[string]*corev1.Pod // that are wanted, by name
	made int

	mu     sync.Mutex // guards what is below: calls come from many goroutines
	rnd    *rand.Rand
	healed bool
	fuse   int // calls until the agent dies; zero: it is not lit
}

func (w *walker) intn(n int) int          { w.mu.Lock(); defer w.mu.Unlock(); return w.rnd.IntN(n) }
func (w *walker) chance(percent int) bool { return w.intn(100) < percent }

// bad tells whether something goes wrong this time.
func (w *walker) bad(percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.healed && w.rnd.IntN(100) < percent
}

func (w *walker) seconds(most int) time.Duration {
	return time.Duration(w.intn(most*1000)) * time.Millisecond
}

// boot replaces the agent, as a crash and a restart do.
func (w *walker) boot() {
	if w.agent != nil {
		w.agent.stop()
	}
	w.mu.Lock()
	w.fuse = 0
	w.mu.Unlock()
	w.add("BOOT")
	w.agent = start(w.t, w.rt, w.dir, world{ask: w.ask, log: w.logger(), status: func(pod *corev1.Pod, st *corev1.PodStatus) {
		w.add("STATUS %s %s", pod.UID, describeStatus(*st))
		w.watch.status(pod, st)
	}})
	w.apply()
}

// heal stops all faults.
func (w *walker) heal() {
	w.mu.Lock()
	w.healed, w.fuse = true, 0
	w.mu.Unlock()
	time.Sleep(time.Minute) // the agent may have made its last call
	if w.agent.dead.Load() {
		w.boot()
	}
}

// apply tells the agent what is wanted.
func (w *walker) apply() {
	w.watch.echo(w.pods)
	pods := make([]*corev1.Pod, 0, len(w.pods))
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, w.pods[name])
	}
	w.watch.wanted(pods)
	for _, pod := range pods {
		w.add("WANTED %s deleted=%t %s", pod.UID, pod.DeletionTimestamp != nil, pod.Spec.RestartPolicy)
	}
	w.agent.set(w.t, pods)
}

// step does one thing to a pod or to the node.
func (w *walker) step() {
	name := fmt.Sprint("p", w.intn(5))
	pod := w.pods[name]
	switch n := w.intn(14); {
	case n == 0:
		delete(w.pods, name)
		w.apply()
	case n <= 2 || pod == nil: // a new pod of that name, as an edited manifest is
		w.made++
		w.mu.Lock()
		w.pods[name] = generatePod(w.rnd, name, fmt.Sprint(name, "-", w.made))
		w.mu.Unlock()
		w.apply()
	case n == 3: // another image for the same pod
		w.change(pod, func(pod *corev1.Pod) {
			w.made++
			pod.Spec.Containers[w.intn(len(pod.Spec.Containers))].Image = fmt.Sprint("image:", w.made)
		})
	case n == 4 && w.chance(50):
		w.change(pod, func(pod *corev1.Pod) { addEphemeral(pod, pod.Spec.Containers[0].Name) })
	case n == 4 && w.watch.api: // deleted, or deleted once more with another grace period
		w.change(pod, func(pod *corev1.Pod) {
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			pod.DeletionGracePeriodSeconds = new(int64(w.intn(40)))
		})
	case n == 5:
		w.boot()
	case n <= 7:
		w.mu.Lock()
		w.fuse = 1 + w.rnd.IntN(10)
		w.mu.Unlock()
	case n == 8 && w.chance(50):
		w.rt.BreakStreams(errors.New("fault: the stream broke"))
	case n == 8: // a sandbox breaks
		if sandboxes := w.watch.list().Sandboxes; len(sandboxes) > 0 {
			_ = w.rt.Kill(sandboxes[w.intn(len(sandboxes))].ID, 0)
		}
	case n <= 11:
		if containers := w.watch.list().Containers; len(containers) > 0 {
			_ = w.rt.Kill(containers[w.intn(len(containers))].ID, w.exitCode())
		}
	}
}

// change replaces a pod by a changed copy: what the agent has must not be written to.
func (w *walker) change(pod *corev1.Pod, how func(pod *corev1.Pod)) {
	pod = pod.DeepCopy()
	how(pod)
	podspec.Default(pod)
	w.pods[pod.Name] = pod
	w.apply()
}

func (w *walker) exitCode() int32 { return []int32{0, 1, 42, 88, 137}[w.intn(5)] }

// script says what a container does, by its name: see generatePod.
func (w *walker) script(c *cri.ContainerConfig) critest.Script {
	s := critest.Script{Exec: w.exec(c)}
	switch {
	case strings.HasPrefix(c.Name, "setup"):
		s.Exit = &critest.Exit{After: w.seconds(5)}
	case strings.HasPrefix(c.Name, "work"), strings.HasPrefix(c.Name, "debug"):
		s.Exit = &critest.Exit{After: w.seconds(120)}
	case w.bad(30):
		s.Exit = &critest.Exit{After: w.seconds(60)}
	}
	if s.Exit != nil && w.bad(50) {
		s.Exit.Code = w.exitCode()
	}
	switch w.intn(3) {
	case 0:
		s.Stop = &critest.Exit{After: critest.Never}
	case 1:
		s.Stop = &critest.Exit{After: w.seconds(10)}
	}
	if w.bad(10) {
		s.StartAfter = w.seconds(20)
	}
	if w.bad(5) {
		s.StartError = errors.New("fault: does not start")
	}
	return s
}

// exec answers the commands of hooks and probes.
func (w *walker) exec(c *cri.ContainerConfig) critest.ExecFunc {
	life := fmt.Sprint(c.Labels[cri.LabelPodUID], "/", c.Name, "/", c.Attempt)
	return func(ctx context.Context, cmd []string) (cri.ExecResult, error) {
		took := time.Duration(0)
		switch {
		case w.bad(20):
			return cri.ExecResult{ExitCode: 1}, nil
		case w.bad(5):
			took = 5 * time.Minute
		case w.bad(10):
			took = w.seconds(20)
		}
		select {
		case <-ctx.Done():
			return cri.ExecResult{}, ctx.Err()
		case <-time.After(took):
		}
		w.watch.succeeded(life, cmd[0])
		return cri.ExecResult{}, nil
	}
}

// ask makes a call, or lets it go wrong.
func (w *walker) ask(ctx context.Context, op, id string, call func(context.Context) error) error {
	w.mu.Lock()
	killed := w.fuse == 1
	w.fuse = max(0, w.fuse-1)
	w.mu.Unlock()
	checked := func(ctx context.Context) error {
		w.watch.before(op, id)
		err := call(ctx)
		w.add("    %s %s: %v", op, id, err)
		return err
	}
	if killed {
		if w.chance(50) {
			_ = checked(ctx) // it takes effect, and nobody hears of it
		}
		w.add("DEATH in %s %s", op, id)
		w.agent.die()
		return errDead
	}
	if !w.bad(15) {
		return checked(ctx)
	}
	switch w.intn(4) {
	case 0:
		w.add("    %s %s: refused", op, id)
		return errors.New("fault: refused")
	case 1:
		if err := checked(ctx); err != nil {
			return err
		}
		return errors.New("fault: the answer is lost")
	case 2: // it takes effect when nobody waits for it any more
		late := w.seconds(30)
		go func() {
			time.Sleep(late)
			w.watch.late(op, id)
			w.add("    %s %s, late: %v", op, id, call(context.WithoutCancel(ctx)))
		}()
		return errors.New("fault: the call is late")
	}
	w.add("    %s %s hangs", op, id)
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	return critest.Hang(ctx)
}

// requireConverged requires of every pod that it is as its spec asks, and that there are no others.
func (w *walker) requireConverged() {
	w.t.Helper()
	w.watch.requireNoTwins()
	has := map[string]cri.Pod{}
	snap := w.watch.list()
	for p := range snap.Pods() {
		has[p.UID] = p
	}
	for name, pod := range w.pods {
		w.watch.requireConverged(pod, has[string(pod.UID)])
		delete(has, string(w.pods[name].UID))
	}
	require.Empty(w.t, has, "nobody wants them")
}

// requireNothingLeft requires that nothing remains of pods in the runtime, and on disk nothing but the logs of pods that an
// agent died over. They are left to whoever collects those of unknown pods.
func (w *walker) requireNothingLeft(last map[string]*corev1.Pod) {
	w.t.Helper()
	snap := w.watch.list()
	require.Empty(w.t, snap.Sandboxes)
	require.Empty(w.t, snap.Containers)
	for _, pod := range last {
		logs := podspec.LogDirectory(filepath.Join(w.dir, "logs"), cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace})
		require.NoDirExists(w.t, logs)
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, "pods"))
	require.NoError(w.t, err)
	require.Empty(w.t, entries)
}
