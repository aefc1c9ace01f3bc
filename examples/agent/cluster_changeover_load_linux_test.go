// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// allowedErrors has parts of error lines of a kubelet that are not about what it finds on the node, each with its reason.
var allowedErrors = map[string]string{
	`object "default"/"secret" not registered`:         "the kubelet mounts a volume of a running pod before it has registered the pod with its manager of secrets",
	"container is already in removing state":           "two goroutines of the kubelet remove a failed instance of an init container: before its next start, and as a dead container of the pod",
	"RecentStats: unable to find data in memory cache": "cAdvisor in the kubelet has found a container that has just started, and has not measured it yet",
}

// readCgroupError is the error line of a kubelet that cannot read the cgroup of a pod. Its group is the name of the pod.
var readCgroupError = regexp.MustCompile(`"failed to read memory cgroup (?:config|limits) for the pod" .*podName="([^"]+)"`)

// unmountAgainError is the error line of a kubelet that begins to unmount a CSI volume which it has unmounted. Its group is the unique name of the volume.
var unmountAgainError = regexp.MustCompile(`"operationExecutor\.UnmountVolume failed .*? for volume \\"([^"\\]+)\\" .*vol_data\.json: no such file or directory`)

// isAllowedError reports whether an error line in the output of a kubelet is not about what it finds on the node. pods are the pods that exist, and isBusy
// tells that the processes of the machine wait for CPUs. These errors are allowed:
//   - The kubelet looks for its Node before its informer has read the Node.
//   - Its housekeeping is slow on a busy machine.
//   - Its reconciler of volumes lists a volume whose teardown ends before the reconciler looks for a pending operation.
//   - It computes the status of a pod that it has terminated once more after it has removed the cgroup of the pod.
func isAllowedError(line, output string, pods []corev1.Pod, isBusy bool) bool {
	for part := range allowedErrors {
		if strings.Contains(line, part) {
			return true
		}
	}
	before, _, _ := strings.Cut(output, line)
	if strings.Contains(line, `err="node \"n1\" not found"`) {
		return !strings.Contains(before, `"Caches populated" type="*v1.Node"`)
	}
	if strings.Contains(line, "Housekeeping took longer than expected") {
		return isBusy
	}
	if match := unmountAgainError.FindStringSubmatch(line); match != nil {
		return strings.Contains(before, `UnmountVolume.TearDown succeeded for volume "`+match[1]+`"`)
	}
	match := readCgroupError.FindStringSubmatch(line)
	return match != nil && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == match[1] && pod.DeletionTimestamp == nil })
}

func TestIsAllowedError(t *testing.T) {
	const (
		head     = "E1129 06:24:22.123456   12345 x.go:1] "
		cgroup   = head + `"failed to read memory cgroup config for the pod" err="open memory.limit_in_bytes: no such file or directory" podName="`
		slow     = head + `"Housekeeping took longer than expected" expected="1s" actual="2s"`
		noNode   = head + `"Unable to register mirror pod because node is not registered yet" err="node \"n1\" not found" node="n1"`
		readNode = `I1129 06:24:22.123456   12345 reflector.go:507] "Caches populated" type="*v1.Node"`
		again    = head + `"operationExecutor.UnmountVolume failed (x) for volume \"kubernetes.io/csi/1-data\" (UniqueName: \"kubernetes.io/csi/1-data\") : open /pods/1/vol_data.json: no such file or directory"`
		unmount  = `I1129 06:24:22.123456   12345 operation_generator.go:791] UnmountVolume.TearDown succeeded for volume "kubernetes.io/csi/1-data" pod "1"`
	)
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}, {ObjectMeta: metav1.ObjectMeta{Name: "ends", DeletionTimestamp: &metav1.Time{}}}}
	for _, c := range []struct {
		before, line string
		isBusy, want bool
	}{
		{line: cgroup + `gone"`, want: true},
		{line: cgroup + `ends"`, want: true},
		{line: cgroup + `stays"`},
		{line: head + `"container is already in removing state"`, want: true},
		{line: head + `"other" podName="gone"`},
		{line: slow, isBusy: true, want: true},
		{line: slow},
		{line: noNode, want: true},
		{before: readNode, line: noNode},
		{before: unmount, line: again, want: true},
		{line: again},
	} {
		require.Equal(t, c.want, isAllowedError(c.line, c.before+"\n"+c.line+"\n"+unmount+"\n", pods, c.isBusy), "%+v", c)
	}
}

// hasBusyCPUs reports whether more than two processes for each CPU of the machine have wanted to run in the last minute.
func hasBusyCPUs(t *testing.T) bool {
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	average, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(average, 64)
	require.NoError(t, err)
	return load > float64(2*runtime.NumCPU())
}

// envInt returns the integer in an environment variable, or value if it is not set.
func envInt(t *testing.T, name string, value int) int {
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// A node with thirty pods of all kinds changes between a kubelet and an agent under load, NODEAGENT_ROUNDS times, at random moments. Half of the
// programs are killed, some of them while pods start or end. No container of the thirty pods starts or stops, no pod loses its readiness, volumes are
// updated on and logs are rotated on. Pods that were starting start once. In the end nothing remains. NODEAGENT_SEED repeats the moments of a run.
func TestClusterChangeOverUnderLoad(t *testing.T) {
	seed := envInt(t, "NODEAGENT_SEED", rand.IntN(1_000_000))
	t.Logf("NODEAGENT_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	n := newTurnNode(t)
	n.start(n.kubelet)
	n.createKinds(podKinds())
	// A kubelet that starts drops the readiness of containers that have started less than ten seconds before. Source: kubeletRestartGracePeriod in
	// pkg/kubelet/prober/prober_manager.go.
	time.Sleep(15 * time.Second)

	clean := map[string]string{}
	pods := n.standingPods()
	before := n.standingRecord(pods)
	n.log.keep(pods, standingContainers(pods))
	t.Logf("before:\n%s", strings.Join(before, "\n"))

	replicas := rand.New(rand.NewPCG(uint64(seed), 1))
	stopLoad := n.startLoad(t, func() int { return replicas.IntN(4) })
	const own = 2 // changes from a kubelet to a kubelet, of which the errors are normal
	limits := ""
	for round := range own + envInt(t, "NODEAGENT_ROUNDS", 4) {
		c := change{name: fmt.Sprintf("r%d", round), kill: random.IntN(2) == 0, delay: time.Duration(random.Int64N(int64(5 * time.Second))), next: n.other()}
		if round < own {
			c.kill, c.next = round == 0, n.kubelet
		}
		starting := n.changeWhileStarting(c, clean)
		require.Equal(t, before, n.standingRecord(pods), "round %d", round)
		require.Empty(t, n.log.takeViolations(), "round %d", round)
		if round < own {
			n.m.do(append([]string{"delete", "pod", "--wait=false"}, starting...)...)
			continue
		}
		if round == own {
			n.m.resize("sized-0", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "200m", "memory": "80Mi"}}}]}}`)
			limits = n.m.kernelLimits("sized-0", "main")
			require.Equal(t, "20000 83886080", limits)
		}
		require.Equal(t, limits, n.m.kernelLimits("sized-0", "main"), "round %d: the resized limits stay", round)
		n.m.do(append([]string{"delete", "pod", "--wait=false"}, starting...)...)
	}
	stopLoad()
	n.log.release()
	n.deleteAll(clean)
}

// change is an end of the current program of a node, and the start of the next one.
type change struct {
	name  string        // prefix of the names of the pods that start meanwhile
	kill  bool          // the current program is killed
	delay time.Duration // between the creation of the pods and the end of the current program
	next  string        // the program that is started
}

// changeWhileStarting creates pods, ends the program after a delay, and starts the next one. It returns the names of the new pods once they run, the
// volumes follow, and logs are rotated.
func (n *turnNode) changeWhileStarting(c change, clean map[string]string) []string {
	n.t.Helper()
	kind := startingKind()
	names := kind.names(c.name + "-")
	n.m.apply(kind.podTexts(names, "starting"))
	time.Sleep(c.delay)
	began := time.Now()
	n.stop(c.kill)
	n.requireNoErrors(clean)
	rotated, text := n.rotatedLogs(), n.written.Load()
	ended := time.Now()
	n.start(c.next)
	n.t.Logf("%s: %s runs, its predecessor was killed: %t, %v after the creation of pods", c.name, n.name(), c.kill, c.delay.Round(time.Millisecond))
	exetest.Eventually(n.t, clusterTimeout, func() error { return n.checkReady("app=starting", names) })
	ready := time.Since(began)
	for _, name := range names {
		require.Equal(n.t, map[string]int{"first": 1, "beside": 1, "main": 1, "more": 1}, n.log.startsOf(name), "starts of pod %s", name)
	}
	n.awaitText(n.standingPods(), text)
	n.awaitRotation(rotated)
	n.requireBackOffs(ended)
	n.t.Logf("%s: new pods are ready %v after the end of the predecessor, all checks took %v", c.name, ready.Round(time.Second), time.Since(began).Round(time.Second))
	return names
}

// requireNoErrors requires that the current program, which has ended, has logged no error about what it has found. The errors of a kubelet that finds
// the node of a kubelet are normal: they are added to clean. A kubelet that is terminated logs that its calls are canceled: these lines do not count.
func (n *turnNode) requireNoErrors(clean map[string]string) {
	n.t.Helper()
	switch {
	case n.current == n.ours:
		require.Empty(n.t, errorsAboutPods(n.p))
	case n.previous != n.ours:
		maps.Copy(clean, errorKinds(n.output))
	default:
		pods := n.m.listPods("")
		isBusy := hasBusyCPUs(n.t)
		isAllowed := func(line string) bool { return isAllowedError(line, n.output, pods, isBusy) }
		require.Empty(n.t, unexpectedErrors(n.output, clean, isAllowed), "the kubelet logs an error that it does not log on a node of its own")
	}
}

// checkReady returns an error unless the pods of these names are ready. A container whose start the runtime has canceled, because the program that
// requested it was killed, never started. Both programs replace it, and count that as a restart.
func (n *turnNode) checkReady(selector string, names []string) error {
	pods := n.m.listPods(selector)
	for _, name := range names {
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name })
		if i < 0 {
			return fmt.Errorf("pod %s does not exist", name)
		}
		statuses := slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses)
		if len(statuses) != len(pods[i].Spec.InitContainers)+len(pods[i].Spec.Containers) {
			return fmt.Errorf("pod %s: %s", name, summarizePod(&pods[i]))
		}
		for _, c := range statuses {
			if !c.Ready || c.RestartCount > 1 {
				return fmt.Errorf("pod %s: %s", name, summarizePod(&pods[i]))
			}
		}
	}
	return nil
}

// requireBackOffs requires that the agent has respected the back-off of crashing containers since its start, also for crashes that its predecessor has
// observed. The agent starts a container that its predecessor has created. A kubelet forgets the back-off when it starts.
func (n *turnNode) requireBackOffs(since time.Time) {
	n.t.Helper()
	if n.current != n.ours {
		return
	}
	for _, pod := range n.m.listPods("app=crashing") {
		starts := n.log.startsOfContainer(pod.Name + " main")
		for i := 1; i < len(starts); i++ {
			backOff := min(10*time.Second<<min(i-1, 10), 5*time.Minute)
			if starts[i].created.After(since) {
				require.Greater(n.t, starts[i].created.Sub(starts[i-1].at), backOff*9/10, "restart %d of pod %s", i, pod.Name)
			}
		}
	}
}

// deleteAll deletes all pods, half of them before a change of the program, and requires that nothing remains.
func (n *turnNode) deleteAll(clean map[string]string) {
	n.t.Helper()
	for _, k := range podKinds() {
		names := k.names("")
		half := names[:len(names)/2]
		for _, name := range half {
			if k.static {
				n.manifests.Remove(name + ".yaml")
			}
		}
		if !k.static && len(half) > 0 {
			n.m.do(append([]string{"delete", "pod", "--wait=false"}, half...)...)
		}
	}
	n.stop(true)
	n.start(n.other())
	for _, k := range podKinds() {
		names := k.names("")
		for _, name := range names[len(names)/2:] {
			if k.static {
				n.manifests.Remove(name + ".yaml")
			}
		}
	}
	n.m.do("delete", "deployment", "--all", "--wait=false")
	n.m.do("delete", "pod", "-l", "app", "--wait=false")
	n.m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	n.requireNothingLeft()
	n.stop(false)
	n.requireNoErrors(clean)
}
