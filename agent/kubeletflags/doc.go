// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletflags parses the command line of a kubelet 1.37 and applies it to the configuration of an agent, so that an agent can be started
// by the scripts, units and tools that start a kubelet. It reads no configuration file itself, prints nothing and exits nowhere.
//
//	line, err := kubeletflags.Parse(os.Args[1:])
//	for _, warning := range line.Warnings {
//		fmt.Fprintln(os.Stderr, warning)
//	}
//	if err == nil && line.Output != "" { // --help or --version
//		fmt.Print(line.Output)
//		return
//	}
//	config, err := line.Load(load) // reads --config and --config-dir with load, then applies the flags
//
// A program prints an error to standard error and exits with [ExitCode]. FLAGS.md has the state of each flag. [Flags] returns the same table.
//
// # Precedence
//
// A flag overrides the files, and the files override the defaults. A map or list of a flag replaces that of the files. Feature gates and node labels
// are merged by key. A flag that is given several times extends its maps and most lists, as in the kubelet. Source: cmd/kubelet/app/server.go.
//
// # States
//
// A flag of a field of KubeletConfiguration has the state of that field in package kubeletconfig. A flag that is not supported is an error with name
// and value, unless the value is the default. Deprecated flags work, with the kubelet's warning.
//
// # Differs from the kubelet
//
//   - The kubelet serves its API without authentication and authorization, and a read-only port, unless a configuration file is given. Here, flags
//     have the defaults of the file: Webhook authorization, no anonymous requests, no read-only port.
//   - The value 0 or "" is refused where the field would have its default then. Example: --max-pods=0.
//   - A field that is refused in a file stays refused if a flag sets another value.
//
// DIFFERENCES.md has the others.
//
// # Concurrency
//
// Parse and Flags may be called from any goroutine. A CommandLine is not changed by its methods.
//
// # Errors
//
// Errors of the syntax, of unknown flags and of positional arguments have the kubelet's text. Other errors begin with the flag and its value.
//
// Test kit: none is needed; only Apply reads files, those of --image-credential-provider-config.
package kubeletflags
