// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// How the WebSocket subprotocols begin and end by which a SPDY connection is tunnelled, such as SPDY/3.1+portforward.k8s.io.
const (
	tunnelPrefix = "SPDY/3.1+"
	tunnelSuffix = ".k8s.io"
)

// serveExec resolves the container of a path. The UID of the path is not looked at, as the kubelet does not.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, p params) {
	o, err := streamOptions(r)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.podOf(w, p)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, p["container"])
	switch {
	case err != nil:
		runtimeError(w, err)
	case id == "":
		text(w, http.StatusInternalServerError, fmt.Sprintf("container not found (%q)", p["container"]))
	default:
		s.o.Streams.ServeExec(w, r, id, r.URL.Query()["command"], o)
	}
}

// serveAttach resolves the container of a path. Whether there is a terminal is what the spec says, because that was settled when the
// container was started.
func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request, p params) {
	o, err := streamOptions(r)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.podOf(w, p)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, p["container"])
	spec := containerSpec(pod, p["container"])
	switch {
	case err != nil:
		runtimeError(w, err)
	case id == "":
		text(w, http.StatusInternalServerError, fmt.Sprintf("container %s not found in pod %s", p["container"], fullName(pod)))
	case p["uid"] != "" && p["uid"] != string(pod.UID):
		text(w, http.StatusInternalServerError, fmt.Sprintf("pod %s not found", fullName(pod)))
	case spec == nil:
		text(w, http.StatusInternalServerError, fmt.Sprintf("container %s not found in pod %s", p["container"], fullName(pod)))
	default:
		o.TTY = spec.TTY
		o.Stderr = o.Stderr && !o.TTY
		s.o.Streams.ServeAttach(w, r, id, o)
	}
}

// servePortForward resolves the sandbox of a path.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, p params) {
	ports, err := forwardPorts(r)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.podOf(w, p)
	if pod == nil {
		return
	}
	if p["uid"] != "" && p["uid"] != string(pod.UID) {
		text(w, http.StatusNotFound, "pod not found")
		return
	}
	part, err := s.runningPart(r.Context(), pod)
	switch {
	case err != nil:
		runtimeError(w, err)
	case len(part.Sandboxes) == 0:
		text(w, http.StatusInternalServerError, fmt.Sprintf("pod not found (%q)", fullName(pod)))
	default:
		s.o.Streams.ServePortForward(w, r, part.Sandboxes[0].ID, ports)
	}
}

// serveRun runs a command to its end, whose words are separated by single spaces, and answers with all of its output.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request, p params) {
	pod := s.podOf(w, p)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(r.Context(), pod, p["container"])
	if err == nil && id == "" {
		err = fmt.Errorf("container not found (%q)", p["container"])
	}
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	cmd := r.FormValue("cmd")
	result, err := s.o.Execer.ExecSync(r.Context(), id, strings.Split(cmd, " "), 0)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", cmd, result.ExitCode, result.Stderr)
	}
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	output := append(result.Stdout, result.Stderr...)
	if output == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	writeJSON(w, output)
}

// streamOptions reads which streams a client wants. A terminal has no stderr of its own. Source: NewOptions in
// k8s.io/cri-streaming/pkg/streaming/remotecommand.
func streamOptions(r *http.Request) (cri.StreamOptions, error) {
	wants := func(name string) bool { return r.FormValue(name) == "1" }
	o := cri.StreamOptions{Stdin: wants("input"), Stdout: wants("output"), Stderr: wants("error"), TTY: wants("tty")}
	o.Stderr = o.Stderr && !o.TTY
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// forwardPorts reads the ports that a WebSocket client wants; other protocols say them later. Source: NewV4Options in
// k8s.io/cri-streaming/pkg/streaming/portforward.
func forwardPorts(r *http.Request) (ports []int32, err error) {
	if !isWebSocket(r) || isTunnel(r) {
		return nil, nil
	}
	lists := r.URL.Query()["port"]
	if len(lists) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	for _, list := range lists {
		if list == "" {
			return nil, errors.New(`query parameter "port" cannot be empty`)
		}
		for word := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(word, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("unable to parse %q as a port: %w", list, err)
			}
			if port == 0 {
				return nil, fmt.Errorf("port %q must be > 0", list)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}

// isWebSocket reports whether a request asks for a WebSocket.
func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range r.Header["Connection"] {
		if strings.Contains(strings.ToLower(line), "upgrade") {
			return true
		}
	}
	return false
}

// isTunnel reports whether a WebSocket is to tunnel a SPDY connection. As in the kubelet, a second line of the header does not count.
func isTunnel(r *http.Request) bool {
	for name := range strings.SplitSeq(r.Header.Get("Sec-Websocket-Protocol"), ",") {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, tunnelPrefix) && strings.HasSuffix(name, tunnelSuffix) {
			return true
		}
	}
	return false
}
