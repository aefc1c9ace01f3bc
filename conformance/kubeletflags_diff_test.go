// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfigapi "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletv1beta1 "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/conformance"
	ourseviction "github.com/seed81659283/nodeagent/eviction"
)

//go:linkname kubeletFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletFlagPrecedence(config *kubeletconfigapi.KubeletConfiguration, args []string) error

// kubeletFlagTable has the flags by name.
var kubeletFlagTable = func() map[string]kubeletflags.Flag {
	table := map[string]kubeletflags.Flag{}
	for _, f := range kubeletflags.Flags() {
		table[f.Name] = f
	}
	return table
}()

// flagsOutput is the configuration that results from a command line and a file, or its refusal.
type flagsOutput struct {
	Refused     bool
	Invalid     bool     // for the validation of the kubelet
	Unsupported []string // flags that nodeagent refuses because it does not support their values; only if no other reason is known
	Warnings    []string
	Kubelet     map[string]any // fields of KubeletConfiguration that are supported and have a flag, without empty values
	Node        map[string]any // flags that have no field there
}

// The command line of a kubelet results in the configuration that it has in a kubelet.
func TestKubeletFlagsHaveTheEffectOfTheKubelet(t *testing.T) {
	host(true)
	conformance.Comparison[flagsInput, flagsOutput]{
		Make: makeFlagsInput, Kubelet: kubeletFlags, Ours: ourFlags, Same: sameFlags,
		Exceptions: []conformance.Exception[flagsInput, flagsOutput]{
			{
				Name: "closed API", Reason: "without a file the kubelet serves its API without authentication, and a read-only port",
				When: func(in flagsInput) bool { return in.File == "" },
				Want: func(in flagsInput, want flagsOutput) flagsOutput {
					if want.Kubelet == nil {
						return want
					}
					for name, value := range map[string]any{
						"anonymous-auth": false, "authentication-token-webhook": true, "authorization-mode": "Webhook", "read-only-port": 0.0,
					} {
						if !in.has(name) {
							setLeaf(want.Kubelet, kubeletFlagTable[name].Field, value)
						}
					}
					return want
				},
			},
			{
				Name: "addresses with leading zeros", Reason: "some programs read them as octal numbers",
				When: func(in flagsInput) bool { return in.hasValue("010.0.0.1") },
				Want: func(flagsInput, flagsOutput) flagsOutput { return flagsOutput{Refused: true} },
			},
			{
				Name: "node IPs that are no addresses", Reason: "the kubelet logs and ignores them",
				When: func(in flagsInput) bool { return in.has("node-ip") && in.hasValue("x") },
				Want: func(flagsInput, flagsOutput) flagsOutput { return flagsOutput{Refused: true} },
			},
			{
				Name: "removed taints", Reason: "the kubelet ignores a taint that ends in a hyphen",
				When: func(in flagsInput) bool { return in.hasValue("a:NoSchedule-") },
				Want: func(flagsInput, flagsOutput) flagsOutput { return flagsOutput{Refused: true} },
			},
			{
				Name: "values after an empty one", Reason: "the kubelet panics, or refuses every further value",
				When: func(in flagsInput) bool {
					return in.hasValue("") && (in.has("address") || in.has("healthz-bind-address") || in.has("reserved-memory"))
				},
			},
		},
	}.Run(t, flags.AtMost(20_000))
}

// sameFlags compares both results. Values that nodeagent accepts here may still be refused by kubeletconfig.Documents.Validate, whose comparison is
// that of configuration files.
func sameFlags(kubelet, ours flagsOutput) bool {
	switch {
	case kubelet.Refused:
		return ours.Refused || len(ours.Unsupported) > 0
	case ours.Refused:
		return kubelet.Invalid
	case len(ours.Unsupported) > 0: // ourFlags has checked the names
		return true
	}
	kubelet.Invalid = false
	return jsonText(kubelet) == jsonText(ours)
}

func jsonText(from any) string {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// kubeletFlags applies a command line as the kubelet does, and makes the checks of its start that concern values of flags.
func kubeletFlags(in flagsInput) (out flagsOutput) {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		panic(err)
	}
	flags := options.NewKubeletFlags()
	var warnings strings.Builder
	set := kubeletFlagSet(flags, config)
	set.SetOutput(&warnings)
	if err := set.Parse(in.Args); err != nil || set.NArg() > 0 || options.ValidateKubeletFlags(flags) != nil {
		return flagsOutput{Refused: true}
	}
	if in.File != "" {
		config = decodeKubeletFile(in.File)
		if err := kubeletFlagPrecedence(config, in.Args); err != nil {
			return flagsOutput{Refused: true}
		}
	}
	name, err := nodeutil.GetHostname(flags.HostnameOverride)
	ips, _, ipErr := nodeutil.ParseNodeIPArgument(flags.NodeIP, "")
	if err != nil || ipErr != nil {
		return flagsOutput{Refused: true}
	}
	out = flagsOutput{Invalid: refusesKubeletConfig(config), Warnings: splitLines(warnings.String()), Kubelet: supportedFields(versionedKubeletConfig(config))}
	if config.CgroupRoot == "" {
		setLeaf(out.Kubelet, "cgroupRoot", "/") // the meaning of an empty value
	}
	if config.EvictionHard == nil {
		setLeaf(out.Kubelet, "evictionHard", ourseviction.DefaultHard()) // the kubelet sets it when it starts
	}
	if !set.Changed("fail-cgroupv1") && !strings.Contains(in.File, "failCgroupV1: true") {
		setLeaf(out.Kubelet, "failCgroupV1", false) // default of nodeagent
	}
	if !set.Changed("serialize-image-pulls") {
		setLeaf(out.Kubelet, "serializeImagePulls", false) // default of nodeagent
	}
	if !set.Changed("hostname-override") || flags.HostnameOverride == "" {
		name = ""
	}
	var addresses []string
	for _, ip := range ips {
		addresses = append(addresses, ip.String())
	}
	out.Node = nodeSettings(flags.KubeConfig, flags.BootstrapKubeconfig, flags.RootDirectory, flags.ImageCredentialProviderBinDir, name, flags.NodeLabels, addresses)
	if set.Changed("v") {
		out.Node["verbosity"] = uint32(config.Logging.Verbosity)
	}
	return out
}

// refusesKubeletConfig reports whether the validation of the kubelet refuses the configuration.
func refusesKubeletConfig(config *kubeletconfigapi.KubeletConfiguration) bool {
	return validation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate) != nil
}

func decodeKubeletFile(text string) *kubeletconfigapi.KubeletConfiguration {
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		panic(err)
	}
	object, _, err := codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		panic(err)
	}
	return object.(*kubeletconfigapi.KubeletConfiguration)
}

func versionedKubeletConfig(config *kubeletconfigapi.KubeletConfiguration) *v1beta1.KubeletConfiguration {
	out := &v1beta1.KubeletConfiguration{}
	if err := kubeletv1beta1.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(config, out, nil); err != nil {
		panic(err)
	}
	return out
}

// ourFlags applies a command line with package kubeletflags.
func ourFlags(in flagsInput) (out flagsOutput) {
	args := in.Args
	if in.File != "" {
		args = append(slices.Clone(args), "--config=file")
	}
	line, err := kubeletflags.Parse(args)
	var d kubeletconfig.Documents
	if err == nil {
		d, err = line.Load(func(string, string) (kubeletconfig.Documents, error) {
			return kubeletconfig.ParseDocuments([]byte(in.File))
		})
	}
	if err == nil {
		d.Kubelet.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true, HostSettings: true})
	}
	if err != nil {
		names, ok := unsupportedFlags(err)
		return flagsOutput{Refused: !ok, Unsupported: names}
	}
	n := &d.Node
	var addresses []string
	for _, ip := range n.NodeIPs {
		addresses = append(addresses, ip.String())
	}
	out = flagsOutput{Warnings: line.Warnings, Kubelet: supportedFields(d.Kubelet)}
	out.Node = nodeSettings(n.Kubeconfig, n.BootstrapKubeconfig, n.RootDir, n.CredentialProviderBinDir, n.NodeName, n.NodeLabels, addresses)
	if in.has("v") {
		out.Node["verbosity"] = line.Verbosity
	}
	return out
}

// unsupportedFlags returns the flags in an error of package kubeletflags. It returns false if the error has another reason than a value that is not
// supported, or names a flag whose value should be.
func unsupportedFlags(err error) (names []string, ok bool) {
	for line := range strings.Lines(err.Error()) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "--"), "=")
		f := kubeletFlagTable[name]
		value, _, _ := strings.Cut(rest, ":")
		number, err := strconv.ParseFloat(strings.TrimRight(value, "s"), 64)
		isZero := value == "" || err == nil && number == 0
		_, values, _ := strings.Cut(rest, ",") // the last of several values counts
		permitted := f.State == kubeletconfig.DefaultOnly || name == "feature-gates" || isZero || values != ""
		if !strings.Contains(line, "is not supported by this version") || !permitted {
			return nil, false
		}
		names = append(names, name)
	}
	return names, true
}

func nodeSettings(kubeconfig, bootstrap, root, providers, name string, labels map[string]string, ips []string) map[string]any {
	all := map[string]string{}
	maps.Copy(all, labels)
	return map[string]any{
		"kubeconfig": kubeconfig, "bootstrap": bootstrap, "root": root, "providers": providers, "name": name, "labels": all, "ips": append([]string{}, ips...),
	}
}

func splitLines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// supportedFields returns the fields of a configuration that are supported and have a flag, by path. Empty values are left out.
func supportedFields(configuration any) map[string]any {
	var all map[string]any
	if err := json.Unmarshal([]byte(jsonText(configuration)), &all); err != nil {
		panic(err)
	}
	leaves := map[string]any{}
	for _, f := range kubeletFlagTable {
		if f.Field == "" || f.State != kubeletconfig.Supported {
			continue
		}
		var value any = all
		for name := range strings.SplitSeq(f.Field, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		setLeaf(leaves, f.Field, value)
	}
	return leaves
}

// setLeaf sets a field, or removes it if the value is empty.
func setLeaf(leaves map[string]any, path string, value any) {
	if slices.Contains([]string{`null`, `""`, `0`, `false`, `"0s"`, `[]`, `{}`}, jsonText(value)) {
		delete(leaves, path)
		return
	}
	leaves[path] = value
}
