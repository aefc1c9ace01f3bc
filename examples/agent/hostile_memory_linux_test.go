// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// attackedAgent is an agent in a memory cgroup with limit memoryLimit. Its API server and its container runtime are in the
// memory of the test, outside of the cgroup. A good pod with probes must not be affected by any attack.
type attackedAgent struct {
	*memoryNode

	program   string // path of the agent
	group     memoryGroup
	runtime   *critest.Runtime
	probed    atomic.Int64 // probe requests of the good pods
	probePort int          // port of the server for these probes
	reviews   atomic.Value // of type http.HandlerFunc: responds to token and access reviews
	rootTest  *testing.T   // the test of all attacks: an agent that one attack starts survives it
	goodID    string       // container ID of the good pod
	newPods   int          // number of further good pods
	killed    int          // OOM kills in the cgroup before the attack
}

// No attack stops the agent, restarts the good pod, fails its probes or its readiness, or delays the start of a new pod by
// more than a minute. The test takes about five minutes: make attacks.
func TestIntegrationHostileAgentIn256MiB(t *testing.T) {
	if os.Getenv("NODEAGENT_ATTACKS") == "" {
		t.Skip("takes five minutes: make attacks runs it")
	}
	b := newAttackedAgent(t)
	for _, a := range attacks {
		passed := t.Run(a.name, func(t *testing.T) {
			b.reportTo(t)
			begun, failed := time.Now(), b.group.limitHits(t)
			b.group.resetPeak()
			a.run(b)
			b.checkHealth()
			t.Logf("%v; peak memory %d of %d MiB, the limit was reached %d times", time.Since(begun).Round(100*time.Millisecond),
				b.group.peak(t)>>20, memoryLimit>>20, b.group.limitHits(t)-failed)
		})
		b.reportTo(t)
		b.restore(passed)
	}
}

// reportTo makes t the test of all helpers of b.
func (b *attackedAgent) reportTo(t *testing.T) { b.t = t }

// newAttackedAgent starts the API server, the runtime and the agent, and waits until the good pod is ready.
func newAttackedAgent(t *testing.T) *attackedAgent {
	t.Helper()
	b := &attackedAgent{rootTest: t, program: buildAgent(t), group: newMemoryGroup(t)}
	files := newFiles(t)
	b.memoryNode = &memoryNode{files: files, Server: apiservertest.NewServer(apiservertest.Options{}), config: map[string]any{
		"objectsDir": "", "containerRuntimeEndpoint": b.serveRuntime(t),
		"authentication": map[string]any{"webhook": map[string]any{"cacheTTL": "1s"}},
	}}
	b.config["kubeconfig"] = b.serveAPI(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.probed.Add(1) }))
	t.Cleanup(server.Close)
	b.probePort = server.Listener.Addr().(*net.TCPAddr).Port
	b.startAgent()
	good := b.goodPod("good")
	require.NoError(t, b.Put(good))
	b.awaitReady("good", timeout)
	b.goodID = b.containerID("good")
	return b
}

// serveRuntime serves the runtime, and returns its endpoint.
func (b *attackedAgent) serveRuntime(t *testing.T) string {
	t.Helper()
	b.runtime = critest.New(critest.Options{Images: []cri.Image{critest.NewImage(firstImage, 1<<20)}, Script: func(c *cri.ContainerConfig) critest.Script {
		if strings.HasPrefix(c.Name, "loud") {
			return critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
				return cri.ExecResult{Stdout: make([]byte, 15<<20)}, nil
			}}
		}
		return critest.Script{}
	}})
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.NoError(t, criserver.New(critest.SummaryRuntime{Runtime: b.runtime}, criserver.Options{}).Serve(ctx, l))
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return "unix://" + socket
}

// serveAPI serves the API with reviews, which the API server in memory lacks, and returns a kubeconfig.
func (b *attackedAgent) serveAPI(t *testing.T) string {
	t.Helper()
	b.reviews.Store(http.HandlerFunc(answerReview))
	listening, stop := b.Listen(true)
	t.Cleanup(stop)
	target, err := url.Parse(listening.Host)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1 // for watches
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "reviews") {
			b.reviews.Load().(http.HandlerFunc)(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { b.DisconnectAll(); front.CloseClientConnections(); front.Close() })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, front.URL), 0o600))
	return file
}

// goodToken is the token of a user with all permissions.
const goodToken = "good"

// answerReview responds to a TokenReview or a SubjectAccessReview, in JSON or in protobuf.
func answerReview(w http.ResponseWriter, r *http.Request) {
	scheme := runtime.NewScheme()
	err := errors.Join(authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme))
	body, errRead := io.ReadAll(r.Body)
	review, _, errDecode := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err = errors.Join(err, errRead, errDecode); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch review := review.(type) {
	case *authenticationv1.TokenReview:
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == goodToken, User: authenticationv1.UserInfo{Username: "good"}}
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = true
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// startAgent starts the agent in its cgroup.
func (b *attackedAgent) startAgent() {
	b.t.Helper()
	attack := b.t
	b.reportTo(b.rootTest)
	b.agent = b.startIn(b.group, b.program, b.config)
	b.reportTo(attack)
	b.awaitNode(corev1.ConditionTrue)
}

// goodPod returns a pod with readiness and liveness probes every second, to the server of the test.
func (b *attackedAgent) goodPod(name string) *corev1.Pod {
	pod := boundPod(name, "sleep 1000")
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt(b.probePort), Path: "/" + name},
	}}
	pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = probe, probe.DeepCopy()
	podapi.Default(pod)
	return pod
}

// attackPod returns a pod on the host network, changed by edit.
func (b *attackedAgent) attackPod(name string, edit func(*corev1.Pod)) *corev1.Pod {
	pod := boundPod(name, "sleep 1000")
	pod.Spec.HostNetwork = true
	edit(pod)
	podapi.Default(pod)
	return pod
}

// awaitReady waits until a pod is ready.
func (b *attackedAgent) awaitReady(name string, limit time.Duration) {
	b.t.Helper()
	exetest.Eventually(b.t, limit/exetest.TimeoutFactor, func() error {
		pod, _ := apiservertest.Get[*corev1.Pod](b.Server, "default", name)
		if pod == nil || len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("pod %s is not ready", name)
		}
		return nil
	})
}

// containerID returns the ID of the container in the status of a pod.
func (b *attackedAgent) containerID(name string) string {
	pod, _ := apiservertest.Get[*corev1.Pod](b.Server, "default", name)
	if pod == nil || len(pod.Status.ContainerStatuses) != 1 {
		return ""
	}
	return pod.Status.ContainerStatuses[0].ContainerID
}

// checkHealth checks that the agent runs, responds, probes the good pod, and starts a new pod within a minute.
func (b *attackedAgent) checkHealth() {
	b.t.Helper()
	require.NoError(b.t, b.checkAlive())
	require.Equal(b.t, b.killed, b.group.countKills(b.t), "the kernel kills no process of the cgroup for its memory")
	before := b.probed.Load()
	b.newPods++
	name := fmt.Sprintf("new%d", b.newPods)
	require.NoError(b.t, b.Put(b.goodPod(name)))
	b.awaitReady(name, time.Minute)
	exetest.Eventually(b.t, 2*time.Second, func() error {
		if b.probed.Load() < before+4 {
			return errors.New("the good pod is not probed")
		}
		return nil
	})
	code, err := b.getStatus("/pods", goodToken)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, code)
	require.Equal(b.t, b.goodID, b.containerID("good"), "the container of the good pod is not replaced")
	b.awaitReady("good", time.Second)
	require.NoError(b.t, b.checkAlive())
}

// checkAlive returns an error if the agent has exited.
func (b *attackedAgent) checkAlive() error {
	if err := syscall.Kill(b.agent.PID(), 0); err != nil {
		return fmt.Errorf("the agent has exited: %w", err)
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.agent.PID()))
	if err != nil || strings.Contains(string(state), ") Z ") {
		return errors.Join(errors.New("the agent has exited"), err)
	}
	return nil
}

// getStatus sends a request to the API of the agent with a token, and returns the HTTP status.
func (b *attackedAgent) getStatus(path, token string) (int, error) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", b.port, path), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// restore removes all pods except the good one. If the agent failed the check after the attack (sound is false), it starts a
// new one without the stored pods.
func (b *attackedAgent) restore(sound bool) {
	b.t.Helper()
	for _, pod := range apiservertest.List[*corev1.Pod](b.Server) {
		if pod.Name != "good" {
			require.NoError(b.t, b.Remove(pod))
		}
	}
	for _, m := range apiservertest.List[*corev1.ConfigMap](b.Server) {
		require.NoError(b.t, b.Remove(m))
	}
	for _, s := range apiservertest.List[*corev1.Service](b.Server) {
		require.NoError(b.t, b.Remove(s))
	}
	b.reviews.Store(http.HandlerFunc(answerReview))
	names, err := filepath.Glob(filepath.Join(b.manifests.Path, "*.yaml"))
	require.NoError(b.t, err)
	for _, name := range names {
		b.manifests.Remove(filepath.Base(name))
	}
	if sound {
		return
	}

	b.agent.Kill()
	b.killed = b.group.countKills(b.t)
	if err := os.Remove(filepath.Join(b.state, "pods.store")); !errors.Is(err, os.ErrNotExist) {
		require.NoError(b.t, err)
	}
	b.startAgent()
	exetest.Eventually(b.t, timeout, func() error { // the status of the good pod may be that of the old agent
		code, err := b.getStatus("/pods", goodToken)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the API of the agent responds with %d", code)
		}
		return err
	})
	b.awaitReady("good", time.Minute)
	b.goodID = b.containerID("good")
}
