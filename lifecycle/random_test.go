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
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

const walkSteps = 200 // of each seed

// walkSeeds returns the number of seeds: NODEAGENT_WALKS, or a default. 500 seeds are 100,000 steps.
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

// TestRandomOperations makes containers exit, hooks and probes fail, calls fail, hang, take effect late or lose their responses,
// specs change, sandboxes break, pods come and go, and kills the agent between any two calls. Every call takes a while. The
// runtime mostly lists without details, and its lists and inspections may fail or hang. Manifests change while no agent runs.
// Volumes and devices fail, pods are evicted, and some are not admitted.
//
// Each call, each status and each kill by a cgroup removal is checked against invariants. Each status is merged into that of an
// API server. At the end, when the faults stop, each pod must have the state of its spec.
func TestRandomOperations(t *testing.T) {
	for seed := range walkSeeds(t) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, seed) })
		})
	}
}

func walk(t *testing.T, seed uint64) {
	w := &walker{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		pods: map[string]*corev1.Pod{}, checker: newChecker(t, seed%2 == 0), history: newHistory(t), detailedLists: seed%5 == 4,
		kernel: newKernel(t),
	}
	w.rt = critest.New(critest.Options{Script: w.script})
	w.checker.rt, w.kernel.rt, w.kernel.mayKill = w.rt, w.rt, w.checker.startedLate
	w.checker.volumes.Fault, w.checker.devices.fault = w.checker.checkVolumeCall, w.checker.checkDeviceCall
	w.restartAgent()
	for range walkSteps {
		w.step()
		pause := time.Duration(w.intn(5000)) * time.Millisecond
		if w.chance(5) {
			pause *= 20
		}
		time.Sleep(pause)
		if w.agent.dead.Load() {
			w.restartAgent()
		}
		w.checker.requireNoTwins(false)
		if t.Failed() {
			t.FailNow()
		}
	}
	w.stopFaults()
	time.Sleep(40 * time.Minute) // hung calls return, back-offs expire
	w.requireConverged()

	last := maps.Clone(w.pods)
	if seed%3 == 1 {
		w.drain()
	} else {
		clear(w.pods)
		w.apply()
		time.Sleep(5 * time.Minute)
	}
	w.requireNothingLeft(last)
	w.agent.stop()
}

// drain starts a new agent that terminates all pods concurrently.
func (w *walker) drain() {
	w.agent.stop()
	w.checker.recordDesired(nil)
	w.startAgent()
	require.NoError(w.t, w.agent.reconciler.Drain(w.t.Context()))
	snap := w.checker.list()
	require.Empty(w.t, snap.Containers, "no containers remain after the drain")
	time.Sleep(time.Minute) // for the removal of directories
}

// walker is a node with random faults.
type walker struct {
	t       *testing.T
	rt      *critest.Runtime
	dir     string
	agent   *killableAgent
	checker *checker
	*history
	pods          map[string]*corev1.Pod // desired pods, by name
	made          int
	detailedLists bool // the runtime has no Inspector
	kernel        *kernel

	mu             sync.Mutex // guards the fields below: calls come from many goroutines
	rnd            *rand.Rand
	faultsStopped  bool
	callsUntilKill int // calls until the agent is killed; zero: not killed
	outage         outage
}

// outage is a part of the runtime that cannot be read for a while.
type outage struct {
	pod   string // UID of a pod that cannot be inspected; empty: no pod
	list  error  // error of listing all pods, or errHang; nil: no error
	until time.Time
}

// errHang is the list error for a call that hangs.
var errHang = errors.New("fault: no answer")

func (w *walker) intn(n int) int          { w.mu.Lock(); defer w.mu.Unlock(); return w.rnd.IntN(n) }
func (w *walker) chance(percent int) bool { return w.intn(100) < percent }

// fails returns true with the given probability, while faults occur.
func (w *walker) fails(percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.faultsStopped && w.rnd.IntN(100) < percent
}

func (w *walker) seconds(most int) time.Duration {
	return time.Duration(w.intn(most*1000)) * time.Millisecond
}

// restartAgent replaces the agent, like a crash and a restart. Manifests may change in between.
func (w *walker) restartAgent() {
	if w.agent != nil {
		w.agent.stop()
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		switch {
		case !w.fails(20):
		case w.chance(30):
			delete(w.pods, name)
		default:
			w.newPod(name)
		}
	}
	w.startAgent()
	w.apply()
}

// startAgent starts an agent without pods.
func (w *walker) startAgent() {
	w.mu.Lock()
	w.callsUntilKill = 0
	w.mu.Unlock()
	w.add("BOOT")
	w.checker.recordAgentStart()
	var rt critest.FullRuntime = critest.SummaryRuntime{Runtime: w.rt}
	if w.detailedLists {
		rt = detailedRuntime{critest.SummaryRuntime{Runtime: w.rt}}
	}
	checked := &critest.Interceptor{Runtime: rt, Around: w.checkCall}
	around := environment{
		write: w.write, read: w.read, latency: w.latency, detailedLists: w.detailedLists, log: w.logger(), kernel: w.kernel,
		volumes: &w.checker.volumes, devices: &w.checker.devices, admit: w.admit,
	}
	around.status = func(pod *corev1.Pod, st *corev1.PodStatus) {
		w.add("STATUS %s %s", pod.UID, podtest.Describe(*st))
		w.checker.checkStatus(pod, st)
	}
	around.podRemoved = w.checker.recordRemoved
	w.agent = newKillableAgent(w.t, checked, w.dir, around)
}

// newPod creates a new pod with the given name, like an edited manifest.
func (w *walker) newPod(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	pod := podtest.Generate(w.rnd, name, fmt.Sprint(name, "-", w.made))
	if podtest.Chance(w.rnd, 30) {
		pod.Spec.HostUsers = new(false)
	}
	if !w.checker.api && podtest.Chance(w.rnd, 50) {
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
	w.pods[name] = pod
}

// stopFaults stops all faults.
func (w *walker) stopFaults() {
	w.mu.Lock()
	w.faultsStopped, w.callsUntilKill = true, 0
	w.mu.Unlock()
	time.Sleep(time.Minute) // the agent may have made its last call
	if w.agent.dead.Load() {
		w.restartAgent()
	}
}

// apply passes the desired pods to the agent.
func (w *walker) apply() {
	w.checker.addStatuses(w.pods)
	pods := make([]*corev1.Pod, 0, len(w.pods))
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, w.pods[name])
	}
	w.checker.recordDesired(pods)
	for _, pod := range pods {
		w.add("WANTED %s deleted=%t %s", pod.UID, pod.DeletionTimestamp != nil, pod.Spec.RestartPolicy)
	}
	w.agent.set(w.t, pods)
}

// step changes one pod or the node at random.
func (w *walker) step() {
	name := fmt.Sprint("p", w.intn(5))
	pod := w.pods[name]
	switch n := w.intn(16); {
	case n == 0:
		w.remove(name)
	case n <= 2 || pod == nil:
		w.newPod(name)
		w.apply()
	case n == 3, n == 13: // another image for a pod, regardless of its restart policy
		w.change(pod, func(pod *corev1.Pod) {
			w.made++
			if i := w.intn(len(pod.Spec.Containers) + len(pod.Spec.InitContainers)); i < len(pod.Spec.Containers) {
				pod.Spec.Containers[i].Image = fmt.Sprint("image:", w.made)
			} else {
				pod.Spec.InitContainers[i-len(pod.Spec.Containers)].Image = fmt.Sprint("image:", w.made)
			}
		})
	case n == 4 && w.chance(50):
		w.change(pod, func(pod *corev1.Pod) { podtest.AddEphemeral(pod, pod.Spec.Containers[0].Name) })
	case n == 4 && w.checker.api: // deletes a pod, or deletes it again with another grace period
		w.change(pod, func(pod *corev1.Pod) {
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			pod.DeletionGracePeriodSeconds = new(int64(w.intn(40)))
		})
	case n == 5:
		w.restartAgent()
	case n <= 7:
		w.mu.Lock()
		w.callsUntilKill = 1 + w.rnd.IntN(10)
		w.mu.Unlock()
	case n == 8 && w.chance(50):
		w.rt.BreakStreams(errors.New("fault: the stream broke"))
	case n == 8: // kills a sandbox
		if sandboxes := w.checker.list().Sandboxes; len(sandboxes) > 0 {
			_ = w.rt.Kill(sandboxes[w.intn(len(sandboxes))].ID, 0)
		}
	case n == 12:
		w.evict(pod)
	case n <= 11:
		if containers := w.checker.list().Containers; len(containers) > 0 {
			_ = w.rt.Kill(containers[w.intn(len(containers))].ID, w.exitCode())
		}
	case n == 14: // makes inspections of a pod hang
		w.startOutage(outage{pod: string(pod.UID)})
	case n == 15 && w.chance(50): // makes lists of all pods fail or hang
		w.startOutage(outage{list: podtest.Pick(w.rnd, []error{errHang, cri.ErrUnavailable, cri.ErrTooLarge})})
	}
}

// startOutage makes the runtime hang for a while, and may restart the agent.
func (w *walker) startOutage(s outage) {
	s.until = time.Now().Add(w.seconds(60))
	w.add("STUCK pod %q, list %v, until %.3f", s.pod, s.list, s.until.Sub(w.began).Seconds())
	w.mu.Lock()
	w.outage = s
	w.mu.Unlock()
	if w.chance(50) {
		w.restartAgent()
	}
}

// change replaces a pod by a changed copy, because the agent's object must not be modified.
func (w *walker) change(pod *corev1.Pod, how func(pod *corev1.Pod)) {
	pod = pod.DeepCopy()
	how(pod)
	podapi.Default(pod)
	w.pods[pod.Name] = pod
	w.apply()
}

func (w *walker) exitCode() int32 { return []int32{0, 1, 42, 88, 137}[w.intn(5)] }

// script returns the behavior of a container, by its name; see podtest.Generate.
func (w *walker) script(c *cri.ContainerConfig) critest.Script {
	s := critest.Script{Exec: w.exec(c), Started: w.kernel.containerStarted}
	switch {
	case strings.HasPrefix(c.Name, "setup"):
		s.Exit = &critest.Exit{After: w.seconds(5)}
	case strings.HasPrefix(c.Name, "work"), strings.HasPrefix(c.Name, "debug"):
		s.Exit = &critest.Exit{After: w.seconds(120)}
	case w.fails(30):
		s.Exit = &critest.Exit{After: w.seconds(60)}
	}
	if s.Exit != nil && w.fails(50) {
		s.Exit.Code = w.exitCode()
	}
	switch w.intn(3) {
	case 0:
		s.Stop = &critest.Exit{After: critest.Never}
	case 1:
		s.Stop = &critest.Exit{After: w.seconds(10)}
	}
	if w.fails(10) {
		s.StartAfter = w.seconds(20)
	}
	if w.fails(5) {
		s.StartError = errors.New("fault: does not start")
	}
	return s
}

// exec runs the commands of hooks and probes.
func (w *walker) exec(c *cri.ContainerConfig) critest.ExecFunc {
	life := fmt.Sprint(c.Labels[cri.LabelPodUID], "/", c.Name, "/", c.Attempt)
	return func(ctx context.Context, cmd []string) (cri.ExecResult, error) {
		took := time.Duration(0)
		switch {
		case w.fails(20):
			return cri.ExecResult{ExitCode: 1}, nil
		case w.fails(5):
			took = 5 * time.Minute
		case w.fails(10):
			took = w.seconds(20)
		}
		select {
		case <-ctx.Done():
			return cri.ExecResult{}, ctx.Err()
		case <-time.After(took):
		}
		w.checker.recordSuccess(life, cmd[0])
		return cri.ExecResult{}, nil
	}
}

// latency returns the duration of a call, which is mostly short.
func (w *walker) latency(string, string) time.Duration {
	if w.fails(3) {
		return w.seconds(3)
	}
	return time.Duration(w.intn(60)) * time.Millisecond
}

// lateCall marks the context of a call that takes effect after the agent has given it up.
type lateCall struct{}

// checkCall checks a call that takes effect now against the invariants.
func (w *walker) checkCall(ctx context.Context, op, id string, call func(context.Context) error) error {
	late := ctx.Value(lateCall{}) != nil
	switch {
	case !mutatingOps[op]:
		return call(ctx)
	case late:
		w.checker.recordLate(op, id)
	default:
		w.checker.checkEffect(op, id)
	}
	err := call(ctx)
	w.add("    %s %s, late=%t: %v", op, id, late, err)
	return err
}

// write makes a call that changes the runtime, or makes it fail.
func (w *walker) write(ctx context.Context, op, id string, call func(context.Context) error) error {
	w.checker.checkRequest(op, id)
	w.mu.Lock()
	killed := w.callsUntilKill == 1
	w.callsUntilKill = max(0, w.callsUntilKill-1)
	w.mu.Unlock()
	if killed {
		if w.chance(50) {
			_ = call(ctx) // the call takes effect, and its result is lost
		}
		w.add("DEATH in %s %s", op, id)
		w.agent.kill()
		return errKilled
	}
	if !w.fails(15) {
		return call(ctx)
	}
	switch w.intn(4) {
	case 0:
		w.add("    %s %s: refused", op, id)
		return errors.New("fault: refused")
	case 1:
		if err := call(ctx); err != nil {
			return err
		}
		return errors.New("fault: the answer is lost")
	case 2:
		if op == "Prepare" || op == "Reserve" || op == "Release" {
			return errors.New("fault: no such server") // calls of volumes and devices end with their context
		}
		late := w.seconds(30)
		go func() {
			time.Sleep(late)
			_ = call(context.WithValue(context.WithoutCancel(ctx), lateCall{}, true))
		}()
		return errors.New("fault: the call is late")
	}
	return w.hang(ctx, op, id)
}

// read makes a call that reads, or makes it fail: always during an outage, and sometimes at random. Images are always
// present.
func (w *walker) read(ctx context.Context, op, id string, call func(context.Context) error) error {
	w.mu.Lock()
	s := w.outage
	if w.faultsStopped || time.Now().After(s.until) {
		s = outage{}
	}
	w.mu.Unlock()
	inspects := op == "PodSandboxStatus" || op == "ContainerStatus"
	switch {
	case inspects && s.pod != "" && strings.HasPrefix(id, s.pod+"-"):
		return w.hang(ctx, op, id)
	case op == "List" && errors.Is(s.list, errHang):
		return w.hang(ctx, op, id)
	case op == "List" && s.list != nil:
		return &cri.Error{Op: op, Err: s.list}
	case strings.HasPrefix(op, "Image"), !w.fails(3):
		return call(ctx)
	case w.chance(50):
		w.add("    %s %s: refused", op, id)
		return errors.New("fault: refused")
	}
	return w.hang(ctx, op, id)
}

func (w *walker) hang(ctx context.Context, op, id string) error {
	w.add("    %s %s hangs", op, id)
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	return &cri.Error{Op: op, ID: id, Err: critest.Hang(ctx)}
}

// requireConverged requires that every pod has the state of its spec, and that there are no other pods.
func (w *walker) requireConverged() {
	w.t.Helper()
	w.checker.requireNoTwins(true)
	has := map[string]cri.Pod{}
	snap := w.checker.list()
	for p := range snap.Pods() {
		has[p.UID] = p
	}
	for name, pod := range w.pods {
		w.checker.requireConverged(pod, has[string(pod.UID)])
		delete(has, string(w.pods[name].UID))
	}
	require.Empty(w.t, has, "pods of no source remain in the runtime")
}

// requireNothingLeft requires that no pod remains in the runtime, and no directory or log of a pod on disk.
func (w *walker) requireNothingLeft(last map[string]*corev1.Pod) {
	w.t.Helper()
	snap := w.checker.list()
	require.Empty(w.t, snap.Sandboxes)
	require.Empty(w.t, snap.Containers)
	for _, pod := range last {
		logs := podspec.LogDirectory(filepath.Join(w.dir, "logs"), cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace})
		require.NoDirExists(w.t, logs)
	}
	require.Empty(w.t, podDirs(w.t, filepath.Join(w.dir, "pods")))
	require.Empty(w.t, w.checker.volumes.PreparedPods())
	require.Empty(w.t, w.checker.devices.reservedPods())
}
