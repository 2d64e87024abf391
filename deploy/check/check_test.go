// Package check reads the files of deploy as those do that they are for. It is a module of
// its own, since that takes the types of Kubernetes and of Compose.
package check_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/matryer/is"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

func TestKubernetesManifestIsStrictlyRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("../kubernetes.yaml")
	is.NoErr(err)
	var deployment appsv1.Deployment
	var service corev1.Service
	var budget policyv1.PodDisruptionBudget
	for i, into := range []any{&deployment, &service, &budget} {
		is.NoErr(sigsyaml.UnmarshalStrict(document(t, text, i), into)) // an unknown field is an error
	}
	is.Equal(deployment.APIVersion+" "+deployment.Kind, "apps/v1 Deployment")
	is.Equal(service.APIVersion+" "+service.Kind, "v1 Service")
	is.Equal(budget.APIVersion+" "+budget.Kind, "policy/v1 PodDisruptionBudget")
	pod := deployment.Spec.Template
	for _, selector := range []map[string]string{deployment.Spec.Selector.MatchLabels, service.Spec.Selector, budget.Spec.Selector.MatchLabels} {
		is.Equal(selector, pod.Labels)
	}
	is.True(*pod.Spec.SecurityContext.RunAsNonRoot)
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		is.True(*c.SecurityContext.ReadOnlyRootFilesystem)
		is.True(!*c.SecurityContext.AllowPrivilegeEscalation)
	}
	is.Equal(pod.Spec.Containers[0].LivenessProbe.HTTPGet.Path, "/healthz")
	is.Equal(service.Spec.Ports[0].TargetPort.StrVal, pod.Spec.Containers[0].Ports[0].Name)
}

// document returns one of the documents of a file, with its anchors resolved, as JSON is.
func document(t *testing.T, text []byte, n int) []byte {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	for range n {
		var skipped yaml.Node
		if err := d.Decode(&skipped); err != nil {
			t.Fatal(err)
		}
	}
	var content any
	if err := d.Decode(&content); err != nil {
		t.Fatal(err)
	}
	plain, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestComposeFileIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	load := func(env ...string) error {
		options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithEnv(env))
		is.NoErr(err)
		project, err := options.LoadProject(context.Background()) // checked by Compose's schema
		if err == nil {
			is.Equal(len(project.Services), 3)
		}
		return err
	}
	is.NoErr(load("POSTLANE_SECRET_KEY=k", "POSTLANE_OPERATOR_KEY=k"))
	err := load("POSTLANE_OPERATOR_KEY=k")
	is.True(err != nil && strings.Contains(err.Error(), "32 bytes in base64"))
}

func TestReleaseConfigurationNamesFilesThatAre(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("../../.goreleaser.yaml")
	is.NoErr(err)
	var config struct {
		Version  int
		Builds   []struct{ Main string }
		Archives []struct{ Files []string }
		Dockers  []struct {
			Dockerfile string
			ExtraFiles []string `yaml:"extra_files"`
		}
	}
	is.NoErr(yaml.Unmarshal(text, &config))
	is.Equal(config.Version, 2)
	files := append([]string{config.Builds[0].Main}, config.Archives[0].Files...)
	for _, d := range config.Dockers {
		files = append(append(files, d.Dockerfile), d.ExtraFiles...)
	}
	is.True(len(files) > 8)
	for _, file := range files {
		found, err := filepath.Glob(filepath.Join("../..", file))
		is.NoErr(err)
		if len(found) == 0 {
			t.Errorf("there is no %s", file)
		}
	}
}

func TestUnitIsVerifiedBySystemd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd is not on this machine")
	}
	text, err := os.ReadFile("../postlane.service")
	is.NoErr(err)
	// The program has to be where the unit says.
	unit := filepath.Join(t.TempDir(), "postlane.service")
	is.NoErr(os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/local/bin/postlane"), []byte("/bin/true")), 0o600))
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", unit)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	err = cmd.Run()
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "postlane.service") { // and not the machine's own units
			t.Error(line)
		}
	}
	if err != nil && !t.Failed() {
		t.Log(said.String())
	}
}
