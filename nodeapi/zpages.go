// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// zVersion is the API version of the JSON responses of /statusz and /flagz.
const zVersion = "config.k8s.io/v1beta1"

const zWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for " +
	"debugging purposes only."

// zStatus is the JSON response of /statusz. Source: package v1beta1 of k8s.io/apiserver/pkg/server/statusz/api (KEP-4827).
type zStatus struct {
	metav1.TypeMeta
	Metadata      zMeta       `json:"metadata"`
	StartTime     metav1.Time `json:"startTime"`
	UptimeSeconds int64       `json:"uptimeSeconds"`
	GoVersion     string      `json:"goVersion"`
	BinaryVersion string      `json:"binaryVersion"`
	Paths         []string    `json:"paths,omitempty"`
}

// zFlags is the JSON response of /flagz. Source: package v1beta1 of k8s.io/apiserver/pkg/server/flagz/api (KEP-4828).
type zFlags struct {
	metav1.TypeMeta
	Metadata zMeta             `json:"metadata"`
	Flags    map[string]string `json:"flags,omitempty"`
}

type zMeta struct {
	Name string `json:"name"`
}

// serveStatus returns the handler of /statusz.
func (s *Server) serveStatus(paths []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := time.Since(s.started)
		version := s.programVersion()
		s.serveZ(w, r, "Statusz", func(out io.Writer) {
			fmt.Fprintf(out, "\n%s statusz\n%s\n\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\n\nPaths: %s\n",
				html.EscapeString(s.o.Name), zWarning, s.started.Format(time.UnixDate),
				int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60, runtime.Version(), html.EscapeString(version),
				html.EscapeString(strings.Join(paths, " ")))
		}, func(meta metav1.TypeMeta, name zMeta) any {
			return zStatus{
				TypeMeta: meta, Metadata: name, StartTime: metav1.NewTime(s.started), UptimeSeconds: int64(up.Seconds()),
				GoVersion: runtime.Version(), BinaryVersion: version, Paths: paths,
			}
		})
	})
}

// serveFlags responds with the flags of the program.
func (s *Server) serveFlags(w http.ResponseWriter, r *http.Request) {
	s.serveZ(w, r, "Flagz", func(out io.Writer) {
		fmt.Fprintf(out, "\n%s flagz\n%s\n", s.o.Name, zWarning)
		for _, name := range slices.Sorted(maps.Keys(s.o.Flags)) {
			fmt.Fprintf(out, "%s: %s\n", name, s.o.Flags[name])
		}
	}, func(meta metav1.TypeMeta, name zMeta) any {
		return zFlags{TypeMeta: meta, Metadata: name, Flags: s.o.Flags}
	})
}

// serveZ responds with the text of plain or the JSON of object, as the Accept header requires.
func (s *Server) serveZ(
	w http.ResponseWriter, r *http.Request, kind string, plain func(io.Writer), object func(metav1.TypeMeta, zMeta) any,
) {
	switch acceptedForm(r.Header.Get("Accept"), kind) {
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		plain(w)
	case "json":
		body, err := json.Marshal(object(metav1.TypeMeta{Kind: kind, APIVersion: zVersion}, zMeta{s.o.Name}))
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error())
			return
		}
		writeJSON(w, append(body, '\n'))
	default:
		writeText(w, http.StatusNotAcceptable, "only the following media types are accepted: application/json, text/plain")
	}
}

// acceptedForm returns "text" or "json", the first that the Accept header accepts, or an empty string.
func acceptedForm(accept, kind string) string {
	if strings.TrimSpace(accept) == "" {
		return "text"
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, p, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		// JSON must be requested with the API version and kind of the page.
		structured := p["as"] == kind && p["v"]+p["g"] != "" && p["g"]+"/"+p["v"] == zVersion
		plain := p["as"] == "" && p["v"] == "" && p["g"] == ""
		switch {
		case structured && (media == jsonType || media == "*/*" || media == "application/*"):
			return "json"
		case plain && (media == "text/plain" || media == "*/*" || media == "text/*"):
			return "text"
		}
	}
	return ""
}

// programVersion returns Options.Version. If it is empty, programVersion returns the version of the main module.
func (s *Server) programVersion() string {
	if s.o.Version != "" {
		return s.o.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// uniqueRoots returns the first element of each path, sorted and without duplicates, for the page /statusz.
func uniqueRoots(paths []string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, "/"+splitPath(path)[0])
	}
	slices.Sort(all)
	return slices.Compact(all)
}
