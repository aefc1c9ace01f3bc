// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// specScenarios test the environment of running containers (users, variables, files) and their termination messages.
func specScenarios() []podScenario {
	return []podScenario{
		{
			name: "runAsNonRoot refuses root",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(
					h.sh("image", "echo never"), h.sh("root", "echo never"),
					h.sh("user", "id -u; id -g; id -G; grep -e CapEff -e NoNewPrivs /proc/self/status; touch /tmp/x || echo read-only; "+runUntilTerm),
				)
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{
					RunAsNonRoot: new(true), FSGroup: new(int64(3000)), SupplementalGroups: []int64{4000},
				}
				pod.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
				pod.Spec.Containers[2].SecurityContext = &corev1.SecurityContext{
					RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000)),
					ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
				}
				return pod
			},
			end: "Pending, image: CreateContainerConfigError, root: CreateContainerConfigError, user: ready",
			act: func(h *host) {
				h.await("Pending, image: CreateContainerConfigError, root: CreateContainerConfigError, user: ready")
				st := h.status()
				assert.Contains(h.t, st.ContainerStatuses[0].State.Waiting.Message, "runAsNonRoot")
				assert.Contains(h.t, st.ContainerStatuses[0].State.Waiting.Message, "the image runs as root")
				assert.Contains(h.t, st.ContainerStatuses[1].State.Waiting.Message, "runAsUser is 0")
				h.awaitLogged("user: read-only")
				require.Subset(h.t, h.logged(), []string{
					"user: 1000", "user: 2000", "user: 2000 3000 4000", "user: CapEff:\t0000000000000000", "user: NoNewPrivs:\t1",
				}, h.diagnostics())
			},
		},
		{
			name: "env from objects",
			pod:  envPod,
			act: func(h *host) {
				h.awaitOnce("Pending, main: CreateContainerConfigError")
				require.NoError(h.t, h.objects.PutSecret(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}, Data: map[string][]byte{"key": []byte("secret")},
				}))
				h.awaitLogged("main: end")
				require.NotEmpty(h.t, h.status().PodIP)
				require.Contains(h.t, h.logged(), "main: "+h.status().PodIP+" "+hostAddress, h.diagnostics())
			},
			end: "Succeeded, main: exited 0",
		},
		{
			name: "hosts file with aliases",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", `hostname; grep -c "^$IP	web.shop.default.svc.cluster.local	web$" /etc/hosts; grep -e ^10.1.2.3 -e ^fc00 /etc/hosts; exit 1`))
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				pod.Spec.Hostname, pod.Spec.Subdomain = "web", "shop"
				pod.Spec.HostAliases = []corev1.HostAlias{
					{IP: "10.1.2.3", Hostnames: []string{"foo.local", "bar.local"}}, {IP: "fc00::1", Hostnames: []string{"six"}},
				}
				pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, fieldVar("IP", "status.podIP"))
				return pod
			},
			end:    "Failed, main: exited 1",
			logged: []string{"main: web", "main: 1", "main: 10.1.2.3\tfoo.local\tbar.local", "main: fc00::1\tsix"},
		},
		{
			name: "termination message",
			pod:  terminationMessagePod,
			act: func(h *host) {
				h.await("Failed, file: exited 0, log: exited 1, path: exited 1")
				h.requireTerminationMessage("file", strings.Repeat("b", 4096))
				h.requireTerminationMessage("log", logLines(121, 200))
				h.requireTerminationMessage("path", "mine")
			},
			end: "Failed, file: exited 0, log: exited 1, path: exited 1",
		},
	}
}

func fieldVar(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// envPod uses variables of all kinds, including one of a secret that is created later.
func envPod(h *host) *corev1.Pod {
	put := func(err error) { require.NoError(h.t, err) }
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	put(h.objects.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta("all"), Data: map[string]string{"A": "1", "B": "2"}}))
	put(h.objects.PutService(&corev1.Service{ObjectMeta: meta("db"), Spec: corev1.ServiceSpec{
		ClusterIP: "10.96.0.5", Ports: []corev1.ServicePort{{Port: 5432}},
	}}))
	main := h.sh("main", `echo $ALL_A $ALL_B $B $SECRET $OPTIONAL. $BOTH $DB_SERVICE_HOST; echo $IP $NODE; echo end`)
	main.EnvFrom = []corev1.EnvFromSource{{
		Prefix: "ALL_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}},
	}}
	key := func(name string, optional bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "key", Optional: &optional,
		}}
	}
	main.Env = append(main.Env,
		corev1.EnvVar{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "all"}, Key: "B",
		}}},
		corev1.EnvVar{Name: "SECRET", ValueFrom: key("late", false)},
		corev1.EnvVar{Name: "OPTIONAL", ValueFrom: key("none", true)},
		corev1.EnvVar{Name: "BOTH", Value: "$(ALL_A)-$(SECRET)-$$(B)"},
		fieldVar("IP", "status.podIP"), fieldVar("NODE", "status.hostIP"),
	)
	pod := h.newPod(main)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return pod
}

// terminationMessagePod writes termination messages above the size limit: to a file, to the log, and to a file with another
// name as another user.
func terminationMessagePod(h *host) *corev1.Pod {
	file := h.sh("file", `{ printf %904s | tr ' ' a; printf %4096s | tr ' ' b; } > /dev/termination-log`)
	log := h.sh("log", `i=0; while [ $i -lt 200 ]; do i=$((i + 1)); echo line $i; done; exit 1`)
	log.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	path := h.sh("path", `echo log; printf mine > /tmp/words; exit 1`)
	path.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	path.TerminationMessagePath = "/tmp/words"
	path.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
	pod := h.newPod(file, log, path)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// nodeScenarios test namespaces that a pod shares, and processes that other programs kill.
func nodeScenarios() []podScenario {
	return []podScenario{
		{
			name: "host network",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", "readlink /proc/self/ns/net; echo $IP; "+runUntilTerm))
				pod.Spec.HostNetwork = true
				pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, fieldVar("IP", "status.podIP"))
				return pod
			},
			act: func(h *host) {
				h.awaitLogged("main: " + hostAddress)
				require.Contains(h.t, h.logged(), "main: "+ownNetwork(h.t), h.diagnostics())
				require.Equal(h.t, hostAddress, h.status().PodIP)
			},
			end: "Running, main: ready",
		},
		{
			name: "containers share processes",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", "exec sleep 424242"), h.sh("other", seesSleep+"tr '\\0' ' ' < /proc/1/cmdline; echo; "+runUntilTerm))
				pod.Spec.ShareProcessNamespace = new(true)
				return pod
			},
			act:    func(h *host) { h.awaitLogged("other: sees it") },
			end:    "Running, main: ready, other: ready",
			logged: []string{"other: sees it", "other: /pause "},
		},
		{
			name: "ephemeral container sees its target",
			pod: func(h *host) *corev1.Pod {
				return h.newPod(h.sh("main", "exec sleep 424242"), h.sh("other", runUntilTerm))
			},
			act: func(h *host) {
				h.await("Running, main: ready, other: ready")
				h.change(func(pod *corev1.Pod) {
					debug := corev1.EphemeralContainer{
						EphemeralContainerCommon: corev1.EphemeralContainerCommon(h.sh("debug", seesSleep+"tr '\\0' ' ' < /proc/1/cmdline; echo; exit 7")),
						TargetContainerName:      "main",
					}
					pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
				})
			},
			end:    "Running, main: ready, other: ready, debug: exited 7",
			logged: []string{"debug: sees it", "debug: sleep 424242 "},
		},
		userScenario(),
		{
			name: "sandbox process is killed",
			pod: func(h *host) *corev1.Pod {
				pod := h.newPod(h.sh("main", h.countInstances("main")+runUntilTerm))
				pod.Spec.InitContainers = []corev1.Container{h.sh("setup", "echo up")}
				return pod
			},
			act: func(h *host) {
				h.await("Running, setup: exited 0, main: ready")
				h.awaitLogged("main: life 1")
				pod, err := h.observed(h.t.Context())
				require.NoError(h.t, err)
				killProcess(h.t, slices.MaxFunc(pod.Sandboxes, byAttempt).ID)
				h.awaitLoggedTimes("main: life 1", 2) // the new sandbox has a new shared namespace without the counter
			},
			end:    "Running, setup: exited 0 x1, main: ready x1",
			logged: []string{"setup: up", "main: life 1", "main: term", "setup: up", "main: life 1"},
		},
	}
}

// userScenario is a pod in a user namespace: its root user is another user on the host, and still owns its files.
func userScenario() podScenario {
	return podScenario{
		name: "pod has a user namespace",
		pod: func(h *host) *corev1.Pod {
			if !slices.ContainsFunc(h.handlers, func(r cri.RuntimeHandler) bool { return r.Name == "" && r.UserNamespaces }) {
				h.t.Skip("this kernel or runtime has no user namespaces for pods")
			}
			pod := h.newPod(h.sh("main", "id -u; touch /root/x && ls -ln /root/x | cut -d' ' -f1; set -- $(cat /proc/self/uid_map); echo $1 $3; [ $2 -ge 65536 ] && echo away; "+runUntilTerm))
			pod.Spec.HostUsers = new(false)
			return pod
		},
		act:    func(h *host) { h.awaitLogged("main: away") },
		end:    "Running, main: ready",
		logged: []string{"main: 0", "main: -rw-r--r--", "main: 0 65536", "main: away"},
	}
}

// seesSleep waits for a process of another container.
const seesSleep = "until ps | grep -q '[s]leep 424242'; do sleep 0.1; done; echo sees it; "

// ownNetwork returns the network namespace of this process.
func ownNetwork(t *testing.T) string {
	link, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	return link
}

func byAttempt(a, b cri.Sandbox) int { return cmp.Compare(a.Attempt, b.Attempt) }

// killProcess kills the process of a sandbox or container, like the kernel's OOM killer.
func killProcess(t *testing.T, id string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), id) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, process.Kill())
		return
	}
	require.FailNow(t, "no process of "+id)
}

// requireTerminationMessage checks the termination message of a container in the status.
func (h *host) requireTerminationMessage(container, want string) {
	h.t.Helper()
	assert.Equal(h.t, want, h.termination(container).Message, "of %s", container)
}

// logLines returns numbered lines of a log.
func logLines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}
