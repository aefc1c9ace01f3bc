// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientforward "k8s.io/client-go/tools/portforward"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubestreaming "k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/streaming/pkg/httpstream"
	utilexec "k8s.io/utils/exec"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// streamRuntime is a runtime with the streaming server of container runtimes. It runs scripts.
type streamRuntime struct {
	*streamtest.Runtime

	server kubestreaming.Server
}

// newStreamRuntime returns a runtime whose server is that of k8s.io/cri-streaming, as containerd has it.
func newStreamRuntime(t *testing.T, scripts *streamtest.Runtime) *streamRuntime {
	t.Helper()
	r := &streamRuntime{Runtime: scripts}
	http := httptest.NewUnstartedServer(nil)
	config := kubestreaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: http.Listener.Addr().String()}
	s, err := kubestreaming.NewServer(config, scripted{scripts})
	if err != nil {
		t.Fatal(err)
	}
	r.server, http.Config.Handler = s, s
	http.Start()
	t.Cleanup(func() {
		http.CloseClientConnections()
		http.Close()
	})
	return r
}

// scripted runs the scripts in the streaming server.
type scripted struct{ *streamtest.Runtime }

func streamSession(in io.Reader, out, errs io.Writer, tty bool, resize <-chan remotecommand.TerminalSize) (cri.Session, func()) {
	s, done := cri.Session{TTY: tty}, make(chan struct{})
	if in != nil {
		s.Stdin = in
	}
	if out != nil {
		s.Stdout = out
	}
	if errs != nil {
		s.Stderr = errs
	}
	sizes := make(chan cri.TerminalSize)
	s.Resize = sizes
	go func() {
		for {
			select {
			case one := <-resize:
				select {
				case sizes <- cri.TerminalSize(one):
				case <-done:
					return
				}
			case <-done:
				return
			}
		}
	}()
	return s, func() { close(done) }
}

func (s scripted) Exec(
	ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	c, end := streamSession(in, out, errs, tty, resize)
	defer end()
	code, err := s.RunExec(ctx, id, cmd, c)
	if err == nil && code != 0 {
		return &utilexec.CodeExitError{Err: fmt.Errorf("error executing command %v, exit code %d", cmd, code), Code: code}
	}
	return err
}

func (s scripted) Attach(
	ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	c, end := streamSession(in, out, errs, tty, resize)
	defer end()
	return s.RunAttach(ctx, id, c)
}

func (s scripted) PortForward(ctx context.Context, id string, port int32, c io.ReadWriteCloser) error {
	return s.RunPortForward(ctx, id, port, c)
}

// streamHost is the kubelet's host interface, with the methods for sessions.
type streamHost struct {
	server.HostInterface

	runtime *streamRuntime
}

func (streamHost) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid"}}, true
}

func streamURL(u string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(u)
}

func (h streamHost) GetExec(
	ctx context.Context, _ string, _ types.UID, container string, cmd []string, o remotecommand.Options,
) (*url.URL, error) {
	return streamURL(h.runtime.Exec(ctx, container, cmd, cri.StreamOptions(o)))
}

func (h streamHost) GetAttach(
	ctx context.Context, _ string, _ types.UID, container string, o remotecommand.Options,
) (*url.URL, error) {
	return streamURL(h.runtime.Attach(ctx, container, cri.StreamOptions(o)))
}

func (h streamHost) GetPortForward(
	ctx context.Context, _, _ string, uid types.UID, o portforward.V4Options,
) (*url.URL, error) {
	return streamURL(h.runtime.PortForward(ctx, string(uid), o.Ports))
}

// Exec returns the URL of a session.
func (r *streamRuntime) Exec(_ context.Context, id string, cmd []string, o cri.StreamOptions) (string, error) {
	a, err := r.server.GetExec(&runtimeapi.ExecRequest{
		ContainerId: id, Cmd: cmd, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	return a.GetUrl(), err
}

// Attach returns the URL of a session.
func (r *streamRuntime) Attach(_ context.Context, id string, o cri.StreamOptions) (string, error) {
	a, err := r.server.GetAttach(&runtimeapi.AttachRequest{
		ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
	})
	return a.GetUrl(), err
}

// PortForward returns the URL of a session.
func (r *streamRuntime) PortForward(_ context.Context, id string, ports []int32) (string, error) {
	a, err := r.server.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
	return a.GetUrl(), err
}

// streamSides returns the URLs of three servers: the kubelet, ours with the same runtime, and ours with a runtime that runs
// sessions itself.
func streamSides(t *testing.T) map[string]string {
	t.Helper()
	scripts := &streamtest.Runtime{
		Main: []string{"out=main", "err=error", "exit=2"},
		Ports: map[int32]func(io.ReadWriteCloser) error{
			81: func(io.ReadWriteCloser) error { return errors.New("nobody listens") },
		},
	}
	runtime := newStreamRuntime(t, scripts)
	handler := server.NewServer(t.Context(), streamHost{runtime: runtime}, nil, nil, nil, nil,
		&kubeletconfig.KubeletConfiguration{EnableDebuggingHandlers: true})
	kubelet := httptest.NewServer(&handler)
	t.Cleanup(kubelet.Close)
	sides := map[string]string{"kubelet": kubelet.URL}
	for name, o := range map[string]streaming.Options{"streamer": {Streamer: runtime}, "runner": {Runner: scripts}} {
		s, err := streaming.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ours := httptest.NewServer(streamMux(s))
		t.Cleanup(func() {
			s.Close()
			ours.Close()
		})
		sides[name] = ours.URL
	}
	return sides
}

// streamMux handles the paths of the kubelet.
func streamMux(s *streaming.Server) http.Handler {
	mux := http.NewServeMux()
	command := func(serve func(http.ResponseWriter, *http.Request, cri.StreamOptions)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			o, err := streaming.ParseStreams(r.URL.Query())
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, err.Error())
				return
			}
			serve(w, r, o)
		}
	}
	mux.HandleFunc("/exec/{ns}/{pod}/{container}", command(func(w http.ResponseWriter, r *http.Request, o cri.StreamOptions) {
		s.ServeExec(w, r, r.PathValue("container"), r.URL.Query()["command"], o)
	}))
	mux.HandleFunc("/attach/{ns}/{pod}/{container}", command(func(w http.ResponseWriter, r *http.Request, o cri.StreamOptions) {
		s.ServeAttach(w, r, r.PathValue("container"), o)
	}))
	mux.HandleFunc("/portForward/{ns}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		ports, err := streaming.ParsePorts(r)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, err.Error())
			return
		}
		s.ServePortForward(w, r, "uid", ports)
	})
	return mux
}

// Both sides return the same status and body for requests that start no session.
func TestStreamRefusals(t *testing.T) {
	const (
		exec    = "/exec/ns/pod/c?output=1&command=out%3Dx"
		forward = "/portForward/ns/pod"
		spdy    = "Connection: Upgrade\nUpgrade: SPDY/3.1\n"
		socket  = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + streamtest.Key + "\n"
		v4      = "X-Stream-Protocol-Version: v4.channel.k8s.io\n"
	)
	tests := []struct{ name, method, path, headers string }{
		{"no upgrade", "POST", exec, ""},
		{"no upgrade of a port-forward", "POST", forward, ""},
		{"upgrade without connection", "POST", exec, "Upgrade: SPDY/3.1\n"},
		{"no stream", "POST", "/exec/ns/pod/c?command=x", spdy + v4},
		{"no stream with a terminal", "POST", "/exec/ns/pod/c?command=x&error=1&tty=1", spdy + v4},
		{"foreign protocol", "POST", exec, spdy + "X-Stream-Protocol-Version: v9.channel.k8s.io\n"},
		{"foreign protocols", "POST", exec, spdy + "X-Stream-Protocol-Version: a, b\nX-Stream-Protocol-Version: c\n"},
		{"empty protocol", "POST", exec, spdy + "X-Stream-Protocol-Version: ,\n"},
		{"WebSocket by POST", "POST", exec, socket},
		{"WebSocket of another version", "GET", exec, strings.Replace(socket, "13", "8", 1)},
		{"WebSocket without a key", "GET", exec, strings.Replace(socket, streamtest.Key, "", 1)},
		{"WebSocket of a foreign protocol", "GET", exec, socket + "Sec-WebSocket-Protocol: chat\n"},
		{"v5 by POST", "POST", exec, socket + "Sec-WebSocket-Protocol: v5.channel.k8s.io\n"},
		{"v5 of another version", "GET", exec, strings.Replace(socket, "13", "8", 1) + "Sec-WebSocket-Protocol: v5.channel.k8s.io\n"},
		{"ports missing", "GET", forward, socket},
		{"no port", "GET", forward + "?port=", socket},
		{"port 0", "GET", forward + "?port=0", socket},
		{"port too large", "GET", forward + "?port=80&port=70000", socket},
		{"foreign port-forward", "POST", forward, spdy + v4},
	}
	sides := streamSides(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := test.method + " " + test.path + " HTTP/1.1\nHost: node\n" + test.headers + "\n"
			want := streamAnswer(t, sides["kubelet"], request)
			for _, side := range []string{"streamer", "runner"} {
				if got := streamAnswer(t, sides[side], request); got != want {
					t.Errorf("%s returned %q, the kubelet %q", side, got, want)
				}
			}
		})
	}
}

// streamAnswer returns the status and the body of a response.
func streamAnswer(t *testing.T, server, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(server, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

// Commands through kubectl's clients have the same outputs, exit codes and errors on both sides.
func TestStreamCommands(t *testing.T) {
	tests := []struct {
		name  string
		steps []string
		stdin string
		tty   bool
	}{
		{"outputs", []string{"out=hello", "err=world"}, "", false},
		{"exit code", []string{"out=hello", "exit=42"}, "", false},
		{"exit code of a signal", []string{"exit=137"}, "", false},
		{"error", []string{"out=hello", "fail=no such file"}, "", false},
		{"stdin", []string{"cat", "out=end"}, strings.Repeat("a line of text\n", 20000), false},
		{"much", []string{"flood=5000000", "err=end"}, "", false},
		{"terminal", []string{"out=a", "err=b", "size", "exit=1"}, "", true},
		{"attach", nil, "", false},
	}
	sides := streamSides(t)
	for _, protocol := range []string{"SPDY", "WebSocket", "WebSocket v4"} {
		for _, test := range tests {
			t.Run(protocol+"/"+test.name, func(t *testing.T) {
				if protocol == "WebSocket v4" && test.stdin != "" {
					t.Log("v4 cannot close stdin, so that the command has no output after it")
					test.steps = []string{"out=no input"}
				}
				q := url.Values{"command": test.steps, "output": {"1"}}
				path := "/exec/ns/pod/c?"
				if test.steps == nil {
					path = "/attach/ns/pod/c?"
				}
				if test.tty {
					q.Set("tty", "1")
				} else {
					q.Set("error", "1")
				}
				if test.stdin != "" {
					q.Set("input", "1")
				}
				want := streamCommand(t, protocol, sides["kubelet"]+path+q.Encode(), test.stdin, test.tty)
				// The kubelet's translation adds a second prefix to the runtime's error; ours passes the error on.
				const once = "Internal error occurred: "
				want = strings.Replace(want, once+once, once, 1)
				for _, side := range []string{"streamer", "runner"} {
					if got := streamCommand(t, protocol, sides[side]+path+q.Encode(), test.stdin, test.tty); got != want {
						t.Errorf("%s: %.300q, the kubelet: %.300q", side, got, want)
					}
				}
			})
		}
	}
}

// oneSize is a terminal whose size is reported once.
type oneSize chan clientcommand.TerminalSize

func (o oneSize) Next() *clientcommand.TerminalSize {
	size, ok := <-o
	if !ok {
		return nil
	}
	return &size
}

// streamCommand runs a command with one of kubectl's clients, and returns its error and outputs.
func streamCommand(t *testing.T, protocol, address, stdin string, tty bool) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: u.Host}
	var client clientcommand.Executor
	switch protocol {
	case "SPDY":
		client, err = clientcommand.NewSPDYExecutor(config, http.MethodPost, u)
	case "WebSocket":
		client, err = clientcommand.NewWebSocketExecutor(config, http.MethodGet, address)
	default:
		client, err = clientcommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, address, "v4.channel.k8s.io")
	}
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	o := clientcommand.StreamOptions{Stdout: &out, Tty: tty}
	if !tty {
		o.Stderr = &errs
	} else {
		sizes := make(oneSize, 1)
		sizes <- clientcommand.TerminalSize{Width: 132, Height: 43}
		defer close(sizes)
		o.TerminalSizeQueue = sizes
	}
	if u.Query().Get("input") != "" {
		o.Stdin = strings.NewReader(stdin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = client.StreamWithContext(ctx, o)
	return fmt.Sprintf("%v %s %s", err, out.String(), errs.String())
}

// Port-forwards of kubectl's clients return the same data and errors on both sides.
func TestStreamPorts(t *testing.T) {
	sides := streamSides(t)
	for _, tunnel := range []bool{false, true} {
		t.Run(fmt.Sprintf("tunnel=%t", tunnel), func(t *testing.T) {
			want := forwardedPorts(t, sides["kubelet"], tunnel)
			for _, side := range []string{"streamer", "runner"} {
				if got := forwardedPorts(t, sides[side], tunnel); got != want {
					t.Errorf("%s: %.300q, the kubelet: %.300q", side, got, want)
				}
			}
		})
	}
}

// forwardedPorts forwards a port that echoes and one that fails, and returns the received data and the error.
func forwardedPorts(t *testing.T, server string, tunnel bool) string {
	t.Helper()
	u, err := url.Parse(server + "/portForward/ns/pod")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: u.Host}
	var dialer httpstream.Dialer
	if tunnel {
		dialer, err = clientforward.NewSPDYOverWebsocketDialerForStreaming(u, config)
	} else {
		transport, upgrader, failed := clientspdy.RoundTripperFor(config)
		dialer, err = clientspdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), failed
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, stop := make(chan struct{}), make(chan struct{})
	var errs bytes.Buffer
	f, err := clientforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:80", "0:81"}, stop, ready, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789", 100000)
	got := throughPort(t, ports[0].Local, text) + throughPort(t, ports[0].Local, "again") + throughPort(t, ports[1].Local, "")
	close(stop)
	<-done
	_, message, _ := strings.Cut(errs.String(), "error forwarding port 81 to pod uid, uid ")
	return got + message
}

// throughPort sends a text to a local port, and returns the received data.
func throughPort(t *testing.T, port uint16, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }()
	got := make([]byte, len(text))
	n, err := io.ReadFull(c, got)
	if text == "" {
		n, err = c.Read(make([]byte, 1))
	}
	return fmt.Sprintf("%d %v %s", n, err != nil, got)
}
