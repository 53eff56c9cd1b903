// The page of the API: Swagger UI, whose requests have the token of the sign-in.
import { askForToken, credentials } from "./signin.js";

const { SwaggerUIBundle } = /** @type {any} */ (globalThis);
const DOCUMENT = "/openapi.json";

SwaggerUIBundle({
  url: DOCUMENT,
  dom_id: "#swagger-ui",
  layout: "BaseLayout",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  requestInterceptor: (/** @type {any} */ request) => ({ ...request, headers: { ...credentials(), ...request.headers } }),
  responseInterceptor: (/** @type {any} */ response) => {
    if ((response.status === 401 || response.status === 403) && response.url.endsWith(DOCUMENT)) {
      askForToken(response.body?.detail ?? response.statusText);
    }
    return response;
  },
});
