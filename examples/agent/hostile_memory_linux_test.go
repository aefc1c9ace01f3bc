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

// besieged is an agent that a memory cgroup holds to memoryLimit, with an API server and a container runtime in the memory of the test, so that
// neither of them counts, and a good pod with probes, which must notice none of the attacks.
type besieged struct {
	*memoryNode

	program string // the path of the agent
	group   memoryGroup
	runtime *critest.Runtime
	probed  atomic.Int64 // requests of the probes of the good pod
	web     int          // port of the server that answers them
	reviews atomic.Value // of type http.HandlerFunc: answers reviews of tokens and of accesses
	all     *testing.T   // of all attacks: an agent that one of them starts lives on
	good    string       // ID of its container
	news    int          // of good pods beside it
	killed  int          // processes that the kernel has killed in the cgroup before the attack
}

// No attack of the corpus stops the agent, costs the good pod a container, a probe or its readiness, or keeps a new pod from being started within a
// minute. It takes some five minutes: make attacks.
func TestIntegrationHostileAgentIn256MiB(t *testing.T) {
	if os.Getenv("NODEAGENT_ATTACKS") == "" {
		t.Skip("takes five minutes: make attacks runs it")
	}
	b := besiege(t)
	for _, a := range attacks {
		passed := t.Run(a.name, func(t *testing.T) {
			b.in(t)
			begun, failed := time.Now(), b.group.failures(t)
			b.group.forgetMost()
			a.run(b)
			b.holds()
			t.Logf("%v; the most memory: %d of %d MiB, the limit was met %d times", time.Since(begun).Round(100*time.Millisecond),
				b.group.most(t)>>20, memoryLimit>>20, b.group.failures(t)-failed)
		})
		b.in(t)
		b.restore(passed)
	}
}

// in has the helpers of b report to t.
func (b *besieged) in(t *testing.T) { b.t = t }

// besiege starts all of it, and waits until the good pod is ready.
func besiege(t *testing.T) *besieged {
	t.Helper()
	b := &besieged{all: t, program: buildAgent(t), group: newMemoryGroup(t)}
	files := newFiles(t)
	b.memoryNode = &memoryNode{files: files, Server: apiservertest.NewServer(apiservertest.Options{}), config: map[string]any{
		"objectsDir": "", "containerRuntimeEndpoint": b.serveRuntime(t),
		"authentication": map[string]any{"webhook": map[string]any{"cacheTTL": "1s"}},
	}}
	b.config["kubeconfig"] = b.serveAPI(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.probed.Add(1) }))
	t.Cleanup(server.Close)
	b.web = server.Listener.Addr().(*net.TCPAddr).Port
	b.launch()
	good := b.goodPod("good")
	require.NoError(t, b.Put(good))
	b.awaitReady("good", timeout)
	b.good = b.containerID("good")
	return b
}

// serveRuntime serves the runtime, and returns its endpoint.
func (b *besieged) serveRuntime(t *testing.T) string {
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

// serveAPI serves the API with reviews, which the API server in memory does not have, and returns a kubeconfig.
func (b *besieged) serveAPI(t *testing.T) string {
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

// goodToken is the token of a user who may do anything.
const goodToken = "good"

// answerReview answers a TokenReview or a SubjectAccessReview, in JSON or in protobuf.
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

// launch starts the agent in its cgroup.
func (b *besieged) launch() {
	b.t.Helper()
	attack := b.t
	b.in(b.all)
	b.agent = b.startIn(b.group, b.program, b.config)
	b.in(attack)
	b.awaitNode(corev1.ConditionTrue)
}

// goodPod returns a pod, whose readiness and liveness the server of the test answers every second.
func (b *besieged) goodPod(name string) *corev1.Pod {
	pod := boundPod(name, "sleep 1000")
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt(b.web), Path: "/" + name},
	}}
	pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = probe, probe.DeepCopy()
	podapi.Default(pod)
	return pod
}

// attacker returns a pod on the network of the host that changes as edit says.
func (b *besieged) attacker(name string, edit func(*corev1.Pod)) *corev1.Pod {
	pod := boundPod(name, "sleep 1000")
	pod.Spec.HostNetwork = true
	edit(pod)
	podapi.Default(pod)
	return pod
}

// awaitReady waits until a pod is ready.
func (b *besieged) awaitReady(name string, limit time.Duration) {
	b.t.Helper()
	exetest.Eventually(b.t, limit/exetest.TimeoutFactor, func() error {
		pod, _ := apiservertest.Get[*corev1.Pod](b.Server, "default", name)
		if pod == nil || len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("pod %s is not ready", name)
		}
		return nil
	})
}

// containerID returns the container of a pod as its status has it.
func (b *besieged) containerID(name string) string {
	pod, _ := apiservertest.Get[*corev1.Pod](b.Server, "default", name)
	if pod == nil || len(pod.Status.ContainerStatuses) != 1 {
		return ""
	}
	return pod.Status.ContainerStatuses[0].ContainerID
}

// holds checks that the agent lives, answers, probes the good pod, and starts a new pod within a minute.
func (b *besieged) holds() {
	b.t.Helper()
	require.NoError(b.t, b.alive())
	require.Equal(b.t, b.killed, b.group.kills(b.t), "the kernel has killed a process for its memory")
	before := b.probed.Load()
	b.news++
	name := fmt.Sprintf("new%d", b.news)
	require.NoError(b.t, b.Put(b.goodPod(name)))
	b.awaitReady(name, time.Minute)
	exetest.Eventually(b.t, 2*time.Second, func() error {
		if b.probed.Load() < before+4 {
			return errors.New("the good pod is not probed")
		}
		return nil
	})
	code, err := b.get("/pods", goodToken)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, code)
	require.Equal(b.t, b.good, b.containerID("good"), "the container of the good pod was replaced")
	b.awaitReady("good", time.Second)
	require.NoError(b.t, b.alive())
}

// alive returns an error if the agent has ended.
func (b *besieged) alive() error {
	if err := syscall.Kill(b.agent.PID(), 0); err != nil {
		return fmt.Errorf("the agent has ended: %w", err)
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.agent.PID()))
	if err != nil || strings.Contains(string(state), ") Z ") {
		return errors.Join(errors.New("the agent has ended"), err)
	}
	return nil
}

// get makes a request to the API of the agent with a token, and returns the HTTP status.
func (b *besieged) get(path, token string) (int, error) {
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

// restore removes all pods but the good one. After an attack that has succeeded it starts a new agent without the stored pods, so that the next
// attack meets a sound agent.
func (b *besieged) restore(sound bool) {
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
	b.killed = b.group.kills(b.t)
	if err := os.Remove(filepath.Join(b.state, "pods.store")); !errors.Is(err, os.ErrNotExist) {
		require.NoError(b.t, err)
	}
	b.launch()
	exetest.Eventually(b.t, timeout, func() error { // the status of the good pod may be that of the agent before
		code, err := b.get("/pods", goodToken)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the API of the agent answers with %d", code)
		}
		return err
	})
	b.awaitReady("good", time.Minute)
	b.good = b.containerID("good")
}
