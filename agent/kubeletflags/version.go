// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"

	"github.com/seed81659283/nodeagent/nodestatus"
)

// Values of the flag --version. Source: k8s.io/component-base/version/verflag.
const (
	versionNo  = "false"
	versionYes = "true"
	versionRaw = "raw"
)

// parseVersion returns "true", "false" or "raw" for the value of --version. A version other than the reported version is an error.
func parseVersion(s string) (string, error) {
	switch {
	case s == versionRaw:
		return versionRaw, nil
	case s == nodestatus.Version: // the agent reports it already
		return versionNo, nil
	case strings.HasPrefix(s, "v"):
		return "", fmt.Errorf("version %q is not supported, the reported version is %s", s, nodestatus.Version)
	}
	yes, err := strconv.ParseBool(s)
	return strconv.FormatBool(yes), err
}

// versionText returns the output of --version, in the format of the kubelet. It is empty if mode is "false".
func versionText(mode string) string {
	switch mode {
	case versionYes:
		return "Kubernetes " + nodestatus.Version + "\n"
	case versionRaw:
		return fmt.Sprintf("%#v\n", versionInfo())
	}
	return ""
}

// versionInfo returns the version of this program. Commit, state and date are those in the binary; they may be missing.
func versionInfo() version.Info {
	numbers := strings.Split(strings.TrimPrefix(nodestatus.Version, "v"), ".")
	info := version.Info{
		Major: numbers[0], Minor: numbers[1], GitVersion: nodestatus.Version,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return info
}
