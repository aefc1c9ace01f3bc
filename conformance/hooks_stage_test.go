// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nooptrace "go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	criclient "k8s.io/cri-client/pkg"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	kubeletlifecycle "k8s.io/kubernetes/pkg/kubelet/lifecycle"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// hookInput is a hook, its container, and the result of the command in the container.
type hookInput struct {
	Handler corev1.LifecycleHandler
	Ports   []corev1.ContainerPort
	Pod     string // "web" has a pod IP, "host" has none
	Gone    bool   // the container does not exist
	Result  cri.ExecResult
}

// hookRun has the result of a hook, and the requests and commands that servers and containers received.
type hookRun struct {
	Requests []string
	Commands [][]string
	Failed   bool
	Message  string // as in the container status
	Event    string
}

// hookStage is the environment of hooks: servers, and a runtime behind a socket. The kubelet and nodeagent have separate
// clients of the runtime. Only one hook runs at a time, so that the recorded requests belong to it.
type hookStage struct {
	kubelet kuberuntime.KubeGenericRuntime
	ours    *remote.Client

	plain, other, secure, rude, closed int // ports

	hangUp func() // closes all connections to the plain server

	turn sync.Mutex // locked while a hook runs

	mu     sync.Mutex
	result cri.ExecResult // of the next command
	seen   hookRun
}

func newHookStage(t *testing.T) *hookStage {
	t.Helper()
	s := &hookStage{closed: closedPort(t)}
	s.plain = s.serve(t, "plain", func(server *httptest.Server) { server.Start(); s.hangUp = server.CloseClientConnections })
	s.other = s.serve(t, "other", (*httptest.Server).Start)
	s.secure = s.serve(t, "secure", func(server *httptest.Server) { server.EnableHTTP2 = true; server.StartTLS() })
	s.rude = listenRaw(t, readAnd("SSH-2.0-OpenSSH_9.2\r\n"))
	s.startRuntime(t)
	return s
}

// startRuntime starts the runtime with two pods of one container each, and both clients.
func (s *hookStage) startRuntime(t *testing.T) {
	t.Helper()
	rt := critest.New(critest.Options{
		PodCIDR: netip.MustParsePrefix(loopback + "/31"),
		Script:  func(*cri.ContainerConfig) critest.Script { return critest.Script{Exec: s.exec} },
	})
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "host"} {
		pod := cri.PodIdentity{UID: name, Name: name, Namespace: "default"}
		labels := map[string]string{
			cri.LabelPodName: name, cri.LabelPodNamespace: "default", cri.LabelPodUID: name, cri.LabelContainerName: "app",
		}
		config := &cri.SandboxConfig{Pod: pod, Labels: labels}
		if name == "host" {
			config.Security.Namespaces.Network = cri.NamespaceNode
		}
		sandbox, err := rt.RunSandbox(t.Context(), config)
		must(err)
		id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "app", Labels: labels, Image: cri.ImageSpec{Image: "app"}}, config)
		must(err)
		must(rt.StartContainer(t.Context(), id))
	}
	socket := t.TempDir() + "/cri.sock"
	l, err := net.Listen("unix", socket)
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = criserver.New(rt, criserver.Options{}).Serve(ctx, l) })
	t.Cleanup(func() { stop(); serving.Wait() })

	service, err := criclient.NewRemoteRuntimeService(ctx, "unix://"+socket, 10*time.Second, nooptrace.NewTracerProvider(), false)
	must(err)
	t.Cleanup(func() { _ = service.Close(ctx) })
	s.kubelet, err = kuberuntime.NewConformanceManager(ctx, kuberuntime.ConformanceParts{Runtime: service})
	must(err)
	s.ours, err = remote.Dial("unix://"+socket, remote.Options{})
	must(err)
	t.Cleanup(func() { _ = s.ours.Close() })
}

// exec handles the commands in containers.
func (s *hookStage) exec(_ context.Context, cmd []string) (cri.ExecResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Commands = append(s.seen.Commands, cmd)
	return s.result, nil
}

// serve starts a server that records its requests, and returns its port.
func (s *hookStage) serve(t *testing.T, name string, start func(*httptest.Server)) int {
	t.Helper()
	handler := hookSite()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := fmt.Sprintf("%s: %s %s %s\nHost: %s\n", name, r.Method, r.RequestURI, r.Proto, r.Host)
		for _, key := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[key] {
				if key != "Connection" || value != "close" { // the header for connections that are not reused
					text += key + ": " + value + "\n"
				}
			}
		}
		s.mu.Lock()
		s.seen.Requests = append(s.seen.Requests, unversioned(text))
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(server)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// unversioned sets the version of a kubelet in the User-Agent header: a binary without release flags has an empty version.
func unversioned(text string) string {
	return strings.ReplaceAll(text, "kube-lifecycle/.\n", hook.UserAgent+"\n")
}

// hookSite handles the paths of the site of probes, and more.
func hookSite() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", site())
	mux.HandleFunc("/hangup", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/announced", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10241")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 300<<10))
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) })
	return mux
}

// run runs a hook with by, the function of one side.
func (s *hookStage) run(h hookInput, by func(context.Context, hookInput) (message, event string, err error)) hookRun {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.result, s.seen = h.Result, hookRun{}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	message, event, err := by(ctx, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Message, s.seen.Event, s.seen.Failed = message, event, err != nil
	return s.seen
}

func (h hookInput) pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: h.Pod, Namespace: "default", UID: types.UID(h.Pod)}}
}

func (h hookInput) container() *corev1.Container {
	return &corev1.Container{Name: "app", Ports: h.Ports}
}

// id returns the ID of the container in critest.
func (h hookInput) id() string {
	if h.Gone {
		return h.Pod + "-gone-0"
	}
	return h.Pod + "-app-0"
}

// byKubelet runs a hook with a client as in NewMainKubelet in pkg/kubelet/kubelet.go. Each hook has new connections.
func (s *hookStage) byKubelet(ctx context.Context, h hookInput) (message, event string, err error) {
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: httpprobe.RedirectChecker(false),
	}
	defer client.CloseIdleConnections()
	recorder := record.NewFakeRecorder(2)
	runner := kubeletlifecycle.NewHandlerRunner(client, s.kubelet, s.kubelet, recorder)
	id := kubecontainer.ContainerID{Type: "critest", ID: h.id()}
	message, err = runner.Run(ctx, id, h.pod(), h.container(), &h.Handler)
	select {
	case event = <-recorder.Events:
	default:
	}
	return inOurWords(message), event, err
}

// byNodeagent runs a hook with the address of the pod. The kubelet reads the address from the runtime.
func (s *hookStage) byNodeagent(ctx context.Context, h hookInput) (message, event string, err error) {
	runner := hook.New(hook.Options{Execer: s.ours, Hooks: hook.Hooks{HTTPFallback: func(_ hook.Call, text string) {
		event += corev1.EventTypeWarning + " " + podevents.ReasonLifecycleHTTPFallback + " " + text
	}}})
	call := hook.Call{Pod: h.pod(), Container: h.container(), ContainerID: h.id()}
	if h.Pod == "web" {
		call.PodIP = loopback
	}
	if err = runner.Run(ctx, call, &h.Handler); err != nil {
		message = normalizeMessage(err.Error())
		if failed, ok := errors.AsType[*hook.Error](err); !ok || failed.Err == nil {
			return "", "", fmt.Errorf("error without a cause: %w", err)
		}
	}
	return message, event, err
}

// kubeletMessages maps error texts of the kubelet to those of nodeagent.
var kubeletMessages = []struct {
	kubelet *regexp.Regexp
	ours    string
}{
	{regexp.MustCompile(`^Cannot run handler: invalid handler: .*TCPSocket:&.*`), "Cannot run handler: invalid handler: tcpSocket handlers are not run"},
	{regexp.MustCompile(`^Cannot run handler: invalid handler: &.*`), "Cannot run handler: invalid handler: is none of exec, httpGet and sleep"},
	{regexp.MustCompile(`error: port (".*") not found$`), "error: field port: $1 names no port of the container"},
	{regexp.MustCompile(`error: invalid port number: (.*)$`), "error: field port: $1 is not from 1 to 65535"},
	{regexp.MustCompile(`error: rpc error: code = NotFound desc = `), "error: ExecSync web-gone-0: "},
	{regexp.MustCompile(`error: failed to find networking container: .*`), "error: the pod has no IP address"},
}

// badHeader matches net/http's error for an invalid header. If several headers are invalid, it names one of them.
var badHeader = regexp.MustCompile(`invalid header field (name|value for) ".*"$`)

// normalizeMessage removes the parts of a message that vary between runs.
func normalizeMessage(message string) string {
	return badHeader.ReplaceAllString(localPort.ReplaceAllString(message, ""), "invalid header field")
}

func inOurWords(message string) string {
	for _, w := range kubeletMessages {
		message = w.kubelet.ReplaceAllString(message, w.ours)
	}
	return normalizeMessage(message)
}
